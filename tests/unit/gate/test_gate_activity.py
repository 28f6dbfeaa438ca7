"""The gate checks arguments first, then policy. Any failure means that the call is not allowed."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.gate.gate import MAX_CONCURRENT_QUERIES, MAX_REASON_CHARS, GateActivities
from orga.activities.ports import PolicyEngine
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.tools.activities import Beats
from tests.support.values.core import a_call, a_spec
from tests.support.values.policies import a_verdict

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = a_spec("read", parameters=SCHEMA)
BROKEN = a_spec("broken", parameters={"type": "nonsense"})
GOOD = a_call("read", path="a")
Answer = Callable[[GateRequest], Verdict]


class Engine:
    """Answers as the test defines and records the requests."""

    is_embedded = True

    def __init__(self, answer: Answer | Exception | Verdict) -> None:
        self.answer = answer
        self.asked: list[GateRequest] = []

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Return or raise the answer."""
        self.asked.append(proposal)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, Verdict) else self.answer(proposal)


ALLOW = a_verdict(True)


def asked_for(*calls: ToolCall, specs: tuple[ToolSpec, ...] = (READ, BROKEN), **fields: Any) -> GateRequest:
    """Return a request for these calls, or for an answer when there are none."""
    about: dict[str, Any] = {"agent": "coder", "iteration": 3, "offered": ("read", "broken"), **fields}
    return GateRequest(calls=calls, specs=specs, **about)


async def verdicts(engine: PolicyEngine, request: GateRequest) -> tuple[Verdict, ...]:
    return (await Beats().run(GateActivities(engine, find_argument_errors).gate, request)).verdicts


async def test_verdicts_record_their_places() -> None:
    """The gate adds the places itself, independently of the policy and of redaction."""
    engine, request = (
        Engine(a_verdict(True, policies=("9.9",))),
        asked_for(GOOD, GOOD, places=("3.0", "3.1")),
    )
    gate = GateActivities(engine, find_argument_errors, KnownSecrets(("3.0",)))
    given = await Beats().run(gate.gate, request)
    assert given.places == ("3.0", "3.1")
    one = await Beats().run(gate.gate, asked_for(answer="done", places=("3",)))
    assert (one.places, one.for_places(("3",))) == ((), one.verdicts)


async def test_an_allowed_call_has_no_reason() -> None:
    engine = Engine(a_verdict(True, reason="because"))
    assert await verdicts(engine, asked_for(GOOD)) == (Verdict(decision="allow"),)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(a_verdict(False, reason="no writes"), "no writes", id="with the engine's reason"),
        pytest.param(a_verdict(False), "not allowed", id="without a reason"),
        pytest.param(a_verdict(False, reason="a\x00\ud800"), "a\ufffd\ufffd", id="with a reason made valid"),
        pytest.param(a_verdict(False, reason="x" * 5_000), "x" * MAX_REASON_CHARS, id="with a reason cut"),
        pytest.param(KeyError("role"), "the policy engine failed: KeyError: 'role'", id="because the engine failed"),
        pytest.param(TimeoutError(), "the policy engine failed: TimeoutError: ", id="because the engine was too slow"),
    ],
)
async def test_a_denied_call_has_a_valid_bounded_reason(answer: Verdict | Exception, reason: str) -> None:
    assert await verdicts(Engine(answer), asked_for(GOOD)) == (Verdict(decision="deny", reason=reason),)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        pytest.param(a_call("rm"), "there is no tool 'rm'; the tools are: read, broken", id="an unknown tool"),
        pytest.param(a_call("Read"), "there is no tool 'Read'", id="a tool name in another case"),
        pytest.param(a_call("x" * 5_000), "there is no tool 'xxx", id="a very long name"),
        pytest.param(
            ToolCall(call_id="c1", name="read", malformed='{"path": '),
            'the arguments of read are not a JSON object with each key once: {"path": ',
            id="malformed arguments",
        ),
        pytest.param(a_call("read"), "the arguments of read do not fit: ", id="a missing argument"),
        pytest.param(
            a_call("read", path=1), "the arguments of read do not fit: $.path: ", id="an argument of a wrong type"
        ),
        pytest.param(a_call("broken"), "broken cannot be called: its schema is invalid", id="a broken schema"),
    ],
)
async def test_an_invalid_call_is_not_sent_to_the_policy(call: ToolCall, reason: str) -> None:
    engine = Engine(ALLOW)
    (verdict,) = await verdicts(engine, asked_for(call))
    assert (verdict.decision, verdict.reason[: len(reason)]) == ("invalid", reason)
    assert len(verdict.reason) <= MAX_REASON_CHARS
    assert engine.asked == []


async def test_an_unknown_call_without_tools_is_reported() -> None:
    (verdict,) = await verdicts(Engine(ALLOW), asked_for(a_call("rm"), specs=(), offered=()))
    assert verdict.reason == "there is no tool 'rm'; the tools are: none"


async def test_each_call_gets_one_verdict_in_call_order() -> None:
    engine = Engine(lambda proposal: a_verdict(proposal.call == GOOD, reason="no"))
    calls = (a_call("read", "1", path="b"), GOOD, a_call("rm", "3"), a_call("read", "4", path="c"))
    found = await verdicts(engine, asked_for(*calls))
    assert [verdict.decision for verdict in found] == ["deny", "allow", "invalid", "deny"]


async def test_a_failure_of_the_engine_denies_only_its_call() -> None:
    def answer(proposal: GateRequest) -> Verdict:
        if proposal.call == GOOD:
            return ALLOW
        raise RuntimeError("rule 7 is broken")

    found = await verdicts(Engine(answer), asked_for(a_call("read", "1", path="b"), GOOD))
    assert [verdict.decision for verdict in found] == ["deny", "allow"]


async def test_a_policy_that_would_change_a_final_answer_denies_it() -> None:
    """The answer must not be given unchanged."""
    engine = Engine(a_verdict(True, arguments={"answer": "less"}))
    (verdict,) = await verdicts(engine, asked_for(answer="all of it"))
    assert (verdict.decision, "wants to change a final answer" in verdict.reason) == ("deny", True)


async def test_the_final_answer_is_judged_too() -> None:
    engine = Engine(a_verdict(False, reason="holds a secret"))
    assert await verdicts(engine, asked_for(answer="the key is")) == (
        Verdict(decision="deny", reason="holds a secret"),
    )
    assert (engine.asked[0].call, engine.asked[0].answer) == (None, "the key is")


async def test_the_engine_gets_all_facts_that_a_policy_may_use() -> None:
    engine = Engine(ALLOW)
    await verdicts(engine, asked_for(GOOD, tenant="acme", trusted_context={"role": "admin"}))
    assert engine.asked == [
        GateRequest(
            agent="coder",
            iteration=3,
            calls=(GOOD,),
            specs=(READ, BROKEN),
            tenant="acme",
            trusted_context={"role": "admin"},
            offered=("read", "broken"),
        )
    ]


@pytest.mark.parametrize(
    ("began", "has", "decision"),
    [
        pytest.param("cedar", "default", "deny", id="policies are missing"),
        pytest.param("cedar", "allow", "deny", id="policy is off"),
        pytest.param("opa", "default", "deny", id="the server is not set up"),
        pytest.param("default", "allow", "deny", id="policy is off, was a list"),
        pytest.param("cedar", "cedar", "allow", id="the same"),
        pytest.param("cedar", "opa", "allow", id="policies of another kind"),
        pytest.param("allow", "default", "allow", id="policy was off"),
        pytest.param("default", "cedar", "allow", id="policies have come"),
        pytest.param("default", "", "allow", id="a worker without a name"),
    ],
)
async def test_no_run_is_judged_by_a_weaker_engine_than_at_its_start(began: str, has: str, decision: str) -> None:
    engine = Engine(ALLOW)
    gate = GateActivities(engine, find_argument_errors, engine_name=has).gate
    calls = await gate(asked_for(GOOD, GOOD, engine=began))
    answer = await gate(asked_for(answer="x", engine=began))
    assert [verdict.decision for verdict in (*calls.verdicts, *answer.verdicts)] == [decision] * 3
    assert bool(engine.asked) == (decision == "allow")


def by(*policies: str, **fields: Any) -> Verdict:
    given: dict[str, Any] = {"allowed": True, "policies": policies, "version": "v1", **fields}
    return a_verdict(**given)


@pytest.mark.parametrize(
    ("judgements", "expected"),
    [
        pytest.param([by("cut", arguments={"path": "b"}), by("ok")], ("allow", ("cut", "ok")), id="changed, allowed"),
        pytest.param(
            [by("cut", arguments={"path": "b"}), by("ok", "cut", arguments={"path": "b"})],
            ("allow", ("cut", "ok")),
            id="each once",
        ),
        pytest.param([by("cut", arguments={"path": "b"}), by()], ("allow", ("cut",)), id="the second names none"),
        pytest.param(
            [by("two", "cut", arguments={"path": "b"}), by("three", arguments={"path": "c"}), by("a")],
            ("allow", ("two", "cut", "three", "a")),
            id="changed twice, in order",
        ),
        pytest.param(
            [by("cut", arguments={"path": "b"}), by("no", allowed=False)], ("deny", ("cut", "no")), id="then denied"
        ),
        pytest.param(
            [by("cut", arguments={"path": "b"}), by("ask", approval=ApprovalTerms())],
            ("approval", ("cut", "ask")),
            id="then held",
        ),
        pytest.param([by("cut", arguments={"path": 1})], ("invalid", ("cut",)), id="changed to invalid arguments"),
        pytest.param(
            [by(f"p{n}", arguments={"path": f"{n}"}) for n in range(3)],
            ("deny", ("p0", "p1", "p2")),
            id="changed again and again",
        ),
        pytest.param([by("ok")], ("allow", ("ok",)), id="not changed"),
    ],
)
async def test_the_policy_that_changed_a_call_is_kept_in_its_verdict(
    judgements: list[Verdict], expected: tuple[str, tuple[str, ...]]
) -> None:
    left = iter(judgements)
    (found,) = await verdicts(Engine(lambda proposal: next(left)), asked_for(GOOD))
    assert (found.decision, found.policies) == expected
    assert found.version == "v1"


@pytest.mark.parametrize(
    ("proposed", "changed"),
    [
        pytest.param({"dry_run": 1}, {"dry_run": True}, id="one and true"),
        pytest.param({"dry_run": False}, {"dry_run": 0}, id="false and zero"),
        pytest.param({"x": 1.0}, {"x": 1}, id="a fraction and a whole number"),
        pytest.param({"in": [{"x": 1}]}, {"in": [{"x": True}]}, id="nested"),
    ],
)
async def test_a_change_counts_even_if_the_values_are_equal_in_python(
    proposed: dict[str, Any], changed: dict[str, Any]
) -> None:
    request = asked_for(a_call("any", **proposed), specs=(a_spec("any"),), offered=("any",))
    (found,) = await verdicts(Engine(a_verdict(True, arguments=changed)), request)
    assert (found.decision, repr(found.arguments)) == ("allow", repr(changed))


async def test_an_unchanged_value_is_no_change() -> None:
    same = {"b": [1, True, 1.5], "a": "x"}
    request = asked_for(a_call("any", a="x", b=[1, True, 1.5]), specs=(a_spec("any"),), offered=("any",))
    (found,) = await verdicts(Engine(a_verdict(True, arguments=same)), request)
    assert (found.decision, found.arguments) == ("allow", None)


class Distant:
    """A remote engine with slow answers that counts concurrent requests."""

    def __init__(self, takes_s: dict[str, float], *, is_embedded: bool = False) -> None:
        self.is_embedded = is_embedded
        self.most = 0
        self._takes_s = takes_s
        self._now = 0

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Allow the request after a delay."""
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(self._takes_s.get(proposal.call.arguments["path"], 0.02) if proposal.call else 0.02)
        finally:
            self._now -= 1
        return a_verdict(True, policies=(proposal.call.arguments["path"] if proposal.call else "answer",))


def many(number: int) -> tuple[ToolCall, ...]:
    return tuple(a_call("read", f"c{index}", path=str(index)) for index in range(number))


@pytest.mark.parametrize(
    ("is_embedded", "most"),
    [pytest.param(False, MAX_CONCURRENT_QUERIES, id="a server"), pytest.param(True, 1, id="in the process")],
)
async def test_calls_of_one_reply_are_judged_concurrently_by_a_server(is_embedded: bool, most: int) -> None:
    engine = Distant({}, is_embedded=is_embedded)
    found = await verdicts(engine, asked_for(*many(24)))
    assert found == tuple(Verdict(decision="allow", policies=(str(index),)) for index in range(24))
    assert engine.most == most


@pytest.mark.parametrize("late", ["0", "3", "23"])
async def test_a_missing_answer_denies_only_its_own_call_as_too_slow(late: str) -> None:
    gate = GateActivities(Distant({late: 60.0}), find_argument_errors)
    beats = Beats(start_to_close_timeout=timedelta(seconds=2))
    found = (await beats.run(gate.gate, asked_for(*many(24)))).verdicts
    assert [index for index, verdict in enumerate(found) if verdict.decision == "deny"] == [int(late)]
    assert "was too slow" in found[int(late)].reason


async def test_a_slow_verdict_on_the_final_answer_is_a_denial_with_that_reason() -> None:
    gate = GateActivities(Never(), find_argument_errors)
    beats = Beats(start_to_close_timeout=timedelta(seconds=0.3))
    (found,) = (await beats.run(gate.gate, asked_for(answer="done"))).verdicts
    assert found.decision == "deny"
    assert found.reason.startswith("the policy engine was too slow: nothing about the answer")


class Never:
    """Never answers."""

    is_embedded = False

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Wait."""
        await asyncio.Event().wait()
        raise AssertionError
