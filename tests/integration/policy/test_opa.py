"""OPA itself: a real server, and a compiled WASM policy in this process."""

import asyncio
import socket
import statistics
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.policy.opa import OpaServer, OpaWasm
from orga.activities.ports import PolicyEngine
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from tests.support.parts.opa import bundle, opa, running_opa
from tests.support.values.policies import a_tool_proposal, a_verdict, an_answer

RULES = """
package orga

decision := {"decision": "allow", "policies": ["reading"]} if input.tool.effect == "read_only"

decision := {"decision": "deny", "reason": "never"} if input.tool.name == "rm"

decision := {"decision": "modify", "arguments": object.union(input.arguments, {"path": "docs/a"})} if {
    input.tool.name == "write_file"
    input.arguments.path != "docs/a"
}

decision := {"decision": "allow"} if {
    input.tool.name == "write_file"
    input.arguments.path == "docs/a"
}

decision := {"decision": "require_approval", "reason": "money", "approvers": ["alice"], "expires_s": 60} if {
    input.tool.name == "pay"
}

decision := {"decision": "allow", "tools": ["read_file"]} if input.action == "delegate"

allowed if input.tainted == false
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rego") / "orga.rego"
    file.write_text(RULES)
    return file


@pytest.fixture(scope="module")
def url(rules: Path) -> Iterator[str]:
    built = bundle(rules, rules.parent / "served.tar.gz", "--revision", "r7")
    with running_opa(built) as address:
        yield address


@pytest.fixture(scope="module")
def compiled(rules: Path) -> Path:
    entrypoints = ("-e", "orga/decision", "-e", "orga/allowed")
    return bundle(rules, rules.parent / "compiled.tar.gz", "-t", "wasm", *entrypoints)


@asynccontextmanager
async def asking(url: str, path: str = "orga/decision", **options: Any) -> AsyncGenerator[OpaServer]:
    """Yield an engine, and close its connections at the end."""
    engine = OpaServer(url, path, **options)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
async def server(url: str) -> AsyncGenerator[OpaServer]:
    async with asking(url) as engine:
        yield engine


@pytest.fixture(params=[pytest.param("server", id="a server"), pytest.param("wasm", id="compiled")])
async def engine(request: pytest.FixtureRequest, server: OpaServer, compiled: Path) -> PolicyEngine:
    return server if request.param == "server" else OpaWasm(compiled, "orga/decision")


TERMS = ApprovalTerms(approvers=("alice",), expires_s=60)


@pytest.mark.parametrize(
    ("proposal", "expected"),
    [
        pytest.param(a_tool_proposal(), a_verdict(True, policies=("reading",)), id="allow"),
        pytest.param(a_tool_proposal("rm", effect="irreversible"), a_verdict(False, "never"), id="deny"),
        pytest.param(
            a_tool_proposal("write_file", effect="idempotent", arguments={"path": "x", "content": "c"}),
            a_verdict(True, arguments={"path": "docs/a", "content": "c"}),
            id="modify",
        ),
        pytest.param(
            a_tool_proposal("pay", effect="irreversible"), a_verdict(True, "money", approval=TERMS), id="approval"
        ),
        pytest.param(an_answer(), a_verdict(False, "OPA has no decision at orga/decision for this"), id="undefined"),
        pytest.param(
            a_tool_proposal("rm", effect="read_only"),
            a_verdict(False),
            id="two rules that disagree",
        ),
    ],
)
async def test_a_rule_decides(engine: PolicyEngine, proposal: GateRequest, expected: Verdict) -> None:
    try:
        found = await engine.judge(proposal)
    except Exception:  # an exception of an engine is a denial: compiled rules that disagree raise
        found = a_verdict(False)
    assert found.decision == expected.decision
    if expected.decision != "deny" or expected.reason:
        assert found.model_copy(update={"version": ""}) == expected


async def test_a_rule_may_be_just_true_or_false(url: str, compiled: Path) -> None:
    clean, tainted = a_tool_proposal(), a_tool_proposal(taint=("fetch_url",))
    async with asking(url, "orga/allowed") as served:
        for engine in (served, OpaWasm(compiled, "orga/allowed")):
            assert [(await engine.judge(p)).decision != "deny" for p in (clean, tainted)] == [True, False]


async def test_the_version_is_the_bundle_revision_or_the_module_digest(server: OpaServer, compiled: Path) -> None:
    assert (await server.judge(a_tool_proposal())).version == "r7"
    assert len((await OpaWasm(compiled, "orga/decision").judge(a_tool_proposal())).version) == 12


async def test_a_bare_module_works_like_a_bundle(compiled: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "xzf", str(compiled), "-C", str(tmp_path), "/policy.wasm"], check=True)
    assert (await OpaWasm(tmp_path / "policy.wasm", "orga/decision").judge(a_tool_proposal())).decision != "deny"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(b"", "neither a .wasm module nor a bundle", id="an empty file"),
        pytest.param(b"\0asm nonsense", "is no compiled OPA policy", id="a broken module"),
    ],
)
def test_a_file_that_is_not_a_policy_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "policy.wasm"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        OpaWasm(file, "orga/decision")


def test_a_bundle_without_the_rule_is_refused(compiled: Path, rules: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no entrypoint 'orga/other'; it has orga/.*: opa build -e orga/other"):
        OpaWasm(compiled, "orga/other")
    with pytest.raises(ValueError, match=r"holds no policy\.wasm"):
        OpaWasm(bundle(rules, tmp_path / "plain.tar.gz"), "orga/decision")


async def test_many_proposals_are_judged_at_once(engine: PolicyEngine) -> None:
    found = await asyncio.gather(*(engine.judge(a_tool_proposal(arguments={"n": n})) for n in range(40)))
    assert all(judgement.decision != "deny" for judgement in found)


async def test_a_missing_server_denies() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with asking(f"http://127.0.0.1:{port}") as engine:
        found = await engine.judge(a_tool_proposal())
    assert (found.decision != "deny", "OPA gave no answer in 3 attempts: ConnectError" in found.reason) == (False, True)


async def test_a_server_that_does_not_answer_denies_in_time() -> None:
    """The server accepts the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        async with asking(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.3) as engine:
            found = await engine.judge(a_tool_proposal())
    assert (found.decision != "deny", found.reason) == (False, "OPA was too slow: it gave no answer within 0.3 s")
    assert time.monotonic() - begun < 10


async def test_a_server_that_requires_a_token(rules: Path, tmp_path: Path) -> None:
    authz = tmp_path / "authz.rego"
    authz.write_text('package system.authz\n\ndefault allow := false\n\nallow if input.identity == "s3cret"\n\n'
                     'allow if input.path == ["health"]\n')  # fmt: skip
    with running_opa(rules, authz, options=("--authentication=token", "--authorization=basic")) as url:
        answers: dict[str, Verdict] = {}
        for token in ("s3cret", "wrong"):
            async with asking(url, token=token) as engine:
                answers[token] = await engine.judge(a_tool_proposal())
    assert {token: found.decision != "deny" for token, found in answers.items()} == {"s3cret": True, "wrong": False}
    assert answers["wrong"].reason == "OPA refused the question: status 401"
    assert not any("wrong" in found.reason for found in answers.values())


async def test_a_decision_over_loopback_takes_milliseconds(server: OpaServer) -> None:
    took: list[float] = []
    for _ in range(50):
        begun = time.perf_counter()
        await server.judge(a_tool_proposal())
        took.append(time.perf_counter() - begun)
    assert statistics.median(took) < 0.1


def test_the_helper_installs_opa_itself() -> None:
    assert (
        "Version: 1.22.0" in subprocess.run([str(opa()), "version"], capture_output=True, text=True, check=True).stdout
    )
