"""Answers of OPA over a simulated network: everything except a clear allow is a denial."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from pydantic_core import from_json

from orga.activities.adapters import http
from orga.activities.adapters.policy.opa import ATTEMPTS, MAX_ANSWER_BYTES, OpaServer, parse_opa_result
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from tests.support.values.policies import a_tool_proposal, a_verdict, an_answer
from tests.support.values.strategies import LAW, any_json


class Server:
    """Answers each request with the next of these and records the requests."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[http.Request] = []

    def __call__(self, request: http.Request) -> http.Response:
        """Answer."""
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, http.Response) else http.Response(200, json=answer)

    def engine(self, **options: Any) -> OpaServer:
        """Return an engine that asks this server."""
        return OpaServer("http://opa.test:8181/", "orga/decision", transport=http.MockTransport(self), **options)


async def judged(*answers: Any, proposal: GateRequest | None = None) -> Verdict:
    return await Server(*answers).engine().judge(proposal or a_tool_proposal())


async def broken_off() -> AsyncIterator[bytes]:
    yield b"{"
    raise http.RemoteProtocolError("cut")


def cut(status: int) -> http.Response:
    return http.Response(status, content=broken_off())


TERMS = ApprovalTerms(approvers=("alice",), expires_s=60)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param({"result": True}, a_verdict(True), id="true"),
        pytest.param({"result": False}, a_verdict(False, "denied by OPA"), id="false"),
        pytest.param({"result": {"decision": "allow"}}, a_verdict(True), id="allow"),
        pytest.param(
            {"result": {"decision": "deny", "reason": "no", "policies": ["p1"], "version": "7"}},
            a_verdict(False, "no", policies=("p1",), version="7"),
            id="deny",
        ),
        pytest.param(
            {"result": {"decision": "modify", "arguments": {"path": "docs/a"}}},
            a_verdict(True, arguments={"path": "docs/a"}),
            id="modify",
        ),
        pytest.param(
            {"result": {"decision": "allow", "arguments": None, "approvers": []}},
            a_verdict(True),
            id="allow with empty fields",
        ),
        pytest.param(
            {"result": {"decision": "require_approval", "reason": "risky", "approvers": ["alice"], "expires_s": 60}},
            a_verdict(True, "risky", approval=TERMS),
            id="require approval",
        ),
        pytest.param(
            {"result": {"decision": "allow", "tools": ["read_file"]}},
            a_verdict(True, tools=("read_file",)),
            id="a narrowed delegation",
        ),
        pytest.param(
            {"result": True, "provenance": {"bundles": {"a": {"revision": "r1"}, "b": {"revision": "r2"}, "c": {}}}},
            a_verdict(True, version="r1,r2"),
            id="the revisions of its bundles",
        ),
        pytest.param(
            {"result": {"decision": "allow", "version": "v9"}, "provenance": {"bundles": {"a": {"revision": "r1"}}}},
            a_verdict(True, version="v9"),
            id="its own version first",
        ),
        pytest.param({"result": True, "provenance": {"bundles": []}}, a_verdict(True), id="odd provenance"),
    ],
)
async def test_an_answer_becomes_a_verdict(answer: Any, expected: Verdict) -> None:
    assert await judged(answer) == expected


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param({}, "OPA has no decision at orga/decision", id="undefined"),
        pytest.param({"result": None}, "an invalid answer", id="null"),
        pytest.param({"result": 1}, "an invalid answer", id="a number"),
        pytest.param({"result": "allow"}, "an invalid answer", id="a bare word"),
        pytest.param({"result": {}}, "decision", id="an empty object"),
        pytest.param({"result": {"allow": True}}, "decision", id="another shape"),
        pytest.param({"result": {"decision": "permit"}}, "decision", id="another word"),
        pytest.param({"result": {"decision": "allow", "aprovers": ["a"]}}, "aprovers", id="an unknown key"),
        pytest.param({"result": {"decision": "modify"}}, "gave no arguments", id="a change without arguments"),
        pytest.param({"result": {"decision": "modify", "arguments": []}}, "arguments", id="arguments that are a list"),
        pytest.param(
            {"result": {"decision": "require_approval", "expires_s": 0}}, "expires_s", id="no time to approve"
        ),
        pytest.param({"result": {"decision": "allow", "arguments": {}}}, "gives arguments", id="allow with a change"),
        pytest.param(
            {"result": {"decision": "allow", "approvers": ["a"]}}, "gives approvers", id="allow with approvers"
        ),
        pytest.param({"result": {"decision": "allow", "expires_s": 60}}, "gives expires_s", id="allow with an expiry"),
        pytest.param(
            {"result": {"decision": "modify", "arguments": {}, "approvers": ["a"]}},
            "gives approvers",
            id="a change with approvers",
        ),
        pytest.param(
            {"result": {"decision": "require_approval", "arguments": {}}},
            "gives arguments",
            id="an approval with a change",
        ),
        pytest.param([], "no JSON object", id="a list"),
        pytest.param(http.Response(200, content=b"<html>"), "no JSON object", id="no JSON"),
        pytest.param(http.Response(200, content=b"\xff"), "no JSON object", id="no text"),
        pytest.param(http.Response(404), "status 404", id="not found"),
        pytest.param(http.Response(401), "status 401", id="no access"),
        pytest.param(cut(403), "status 403", id="no access, cut"),
        pytest.param(http.Response(302, headers={"location": "http://evil.test"}), "status 302", id="a redirect"),
    ],
)
async def test_an_invalid_answer_is_a_denial(answer: Any, says: str) -> None:
    found = await judged(answer)
    assert (found.decision != "deny", says in found.reason) == (False, True), found.reason


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(http.Response(500), id="a broken server"),
        pytest.param(http.Response(503), id="a busy server"),
        pytest.param(http.Response(429), id="too many"),
        pytest.param(http.ConnectError("refused"), id="no server"),
        pytest.param(http.RemoteProtocolError("gone"), id="a connection that ends"),
    ],
)
async def test_a_temporary_failure_is_retried(failure: Any) -> None:
    server = Server(failure, failure, {"result": True})
    assert (await server.engine().judge(a_tool_proposal())).decision != "deny"
    assert len(server.asked) == ATTEMPTS


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        pytest.param(http.Response(500), "status 500", id="a broken server"),
        pytest.param(cut(503), "status 503", id="a busy server, cut"),
        pytest.param(http.ConnectError("refused"), "ConnectError refused", id="no server"),
    ],
)
async def test_a_permanent_failure_is_a_denial(failure: Any, says: str) -> None:
    server = Server(failure)
    found = await server.engine().judge(a_tool_proposal())
    assert (found.decision != "deny", found.reason) == (False, f"OPA gave no answer in 3 attempts: {says}")
    assert len(server.asked) == ATTEMPTS


async def test_a_slow_server_is_a_denial() -> None:
    async def wait(request: http.Request) -> http.Response:
        await asyncio.sleep(60)
        return http.Response(200, json={"result": True})

    engine = OpaServer("http://opa.test", "p", transport=http.MockTransport(wait), timeout_s=0.05)
    assert (await engine.judge(a_tool_proposal())).reason == "OPA was too slow: it gave no answer within 0.05 s"


async def test_the_request_contains_all_facts_that_a_rule_may_use() -> None:
    server = Server({"result": True})
    await server.engine(token="t0ken").judge(
        a_tool_proposal(
            "write_file", effect="irreversible", tags=("files",), verified=True, arguments={"path": "a"},
            iteration=3, depth=1, tenant="acme", trusted_context={"role": "boss"}, taint=("fetch_url",),
            values={"get_order": {"total": 12}}, left={"tokens": 5.0}, purpose="fallback", approved_by="alice",
            approved_version="v1", parameters={"type": "object"},
        )
    )  # fmt: skip
    (request,) = server.asked
    assert str(request.url) == "http://opa.test:8181/v1/data/orga/decision?provenance=true"
    assert request.headers["authorization"] == "Bearer t0ken"
    assert from_json(request.content)["input"] == {
        "action": "tool_call",
        "agent": "default",
        "tool": {
            "name": "write_file",
            "effect": "irreversible",
            "tags": ["files"],
            "verified": True,
            "approval": False,
        },
        "target": None,
        "arguments": {"path": "a"},
        "parameters": {"type": "object"},
        "answer": None,
        "plan": None,
        "trusted": {"role": "boss"},
        "values": {"get_order": {"total": 12}},
        "tenant": "acme",
        "iteration": 3,
        "depth": 1,
        "left": {"tokens": 5.0},
        "taint": ["fetch_url"],
        "tainted": True,
        "purpose": "fallback",
        "approved_by": "alice",
        "approved_version": "v1",
    }


@pytest.mark.parametrize(
    ("proposal", "action", "target"),
    [
        pytest.param(an_answer(), "respond", None, id="an answer"),
        pytest.param(
            GateRequest(
                agent="a", iteration=1, calls=(ToolCall(call_id="c", name="delegate", arguments={"agent": "b"}),)
            ),
            "delegate", "b", id="a delegation",
        ),
        pytest.param(
            GateRequest(agent="a", iteration=1, calls=(ToolCall(call_id="c", name="terminate"),)), "terminate", None,
            id="an end",
        ),
    ],
)  # fmt: skip
async def test_the_request_names_the_action_and_its_target(
    proposal: GateRequest, action: str, target: str | None
) -> None:
    server = Server({"result": True})
    await server.engine().judge(proposal)
    asked = from_json(server.asked[0].content)["input"]
    assert (asked["action"], asked["target"]) == (action, target)


def is_yes(result: Any) -> bool:
    match result:
        case True | {"decision": "allow" | "modify" | "require_approval"}:
            return True
        case _:
            return False


@LAW
@given(any_json)
def test_only_a_clear_allow_is_an_allow(result: Any) -> None:
    assert (parse_opa_result(result, "").decision != "deny") <= is_yes(result)


def echoed(request: http.Request) -> http.Response:
    return http.Response(200, json={"result": "arguments" in from_json(request.content)["input"]})


ECHO = OpaServer("http://opa.test", "p", transport=http.MockTransport(echoed))


@LAW
@given(any_json)
async def test_any_arguments_are_judged_or_denied(value: Any) -> None:
    found = await ECHO.judge(a_tool_proposal(arguments={"value": value}))
    assert found.decision != "deny" or "surrogates not allowed" in found.reason


async def test_an_endless_answer_is_a_denial() -> None:
    """Its beginning would be an allow."""
    found = await judged(http.Response(200, content=b'{"result": true}' + b" " * MAX_ANSWER_BYTES))
    assert (found.decision != "deny", found.reason) == (False, "OPA gave an answer of more than 1000000 bytes")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"result": false, "result": true}', id="a result twice"),
        pytest.param(b'{"result": {"decision": "deny", "decision": "allow"}}', id="a decision twice"),
        pytest.param(b'{"result": true, "x": {"a": 1, "a": 1}}', id="an unused key twice"),
        pytest.param(b'{"result": true, "x": "' + b"y" * 1_000_001 + b'"}', id="more than a megabyte"),
        pytest.param(b"[" * 100_000, id="too deep"),
    ],
)
async def test_an_ambiguous_answer_is_a_denial(body: bytes) -> None:
    assert ((await judged(http.Response(200, content=body))).decision != "deny") is False


async def test_without_an_approval_its_fields_are_absent() -> None:
    server = Server({"result": True})
    await server.engine().judge(a_tool_proposal())
    asked = from_json(server.asked[0].content)["input"]
    assert {"approved_by", "approved_version"}.isdisjoint(asked)
