"""docs/policies.md works as printed: its files are written, its commands run, its Rego is evaluated."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from orga.activities.adapters.policy.opa import OpaServer, OpaWasm
from orga.workflows.types.tool_calls.gate import Verdict
from tests.support.parts.opa import bundle, running_opa
from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.orga_command import ROOT, Orga
from tests.support.values.policies import a_tool_proposal, an_answer

GUIDE = (ROOT / "docs" / "policies.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "README.md").write_text("# Project\n\nRetries are configured with `max_attempts`.\n")
    for text in (*blocks("cedar"), *blocks("text")):
        name = text.splitlines()[0].lstrip("/# ")
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    command = an_inline_orga(folder, tmp_path_factory.mktemp("home"))
    yield command
    command("server", "--stop")


def test_the_commands_of_the_guide(orga: Orga) -> None:
    lines = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    shown: list[str] = []
    run = ""
    for words in (words[1:] for words in lines if words[0] == "orga"):
        done = orga(*[run if word == "ID" else word for word in words], *(["--json"] if words[0] == "run" else []))
        assert done.code == 0, (words, done.err)
        if words[0] == "run":
            run = re.findall(r"agent-[0-9a-f-]+", done.err + done.out)[0]
        shown.append(done.out)
    checked, tested, _, everything, first = shown
    assert [line.split()[1] for line in checked.splitlines()] == [
        "reading:",
        "answering:",
        "writing-docs:",
        "untrusted-content:",
    ]
    assert [line.split()[:2] for line in tested.splitlines()] == [["✓", "allow"], ["✓", "deny"], ["✓", "approval"]]
    assert 'when { resource.effect == "read_only" };' in first
    assert "policy answering (policies/agents.cedar:6)" in everything
    assert len(everything) > len(first)


def test_the_policies_of_the_guide_can_be_printed_as_json(orga: Orga) -> None:
    done = orga("policy", "check", "--json")
    assert (done.code, '"ok": true' in done.out) == (0, True)


async def test_the_rego_of_the_guide(tmp_path: Path) -> None:
    (rego,) = blocks("rego")
    (file := tmp_path / "policy.rego").write_text(rego)
    proposals = [
        a_tool_proposal(),
        a_tool_proposal("send", effect="irreversible", arguments={"limit": 99}),
        a_tool_proposal("send", effect="irreversible", arguments={"limit": 9}),
        a_tool_proposal("rm", effect="irreversible"),
        an_answer(),
    ]
    with running_opa(file) as url:
        server = OpaServer(url, "orga/decision")
        served = [verdict_text(await server.judge(proposal)) for proposal in proposals]
        await server.close()
    wasm = OpaWasm(bundle(file, tmp_path / "policy.tar.gz", "-t", "wasm", "-e", "orga/decision"), "orga/decision")
    assert served == [verdict_text(await wasm.judge(proposal)) for proposal in proposals]
    assert served == ["reading", "{'limit': 10}", "alice", "nothing allows it", "allowed"]


def verdict_text(judgement: Verdict) -> str:
    """Return what distinguishes one decision from the others."""
    terms = judgement.approval
    found = (*judgement.policies, *(terms.approvers if terms else ()), judgement.arguments or judgement.reason)
    return str(found[0] or "allowed")
