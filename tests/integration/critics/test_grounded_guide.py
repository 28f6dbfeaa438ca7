"""The example of docs/grounded-decisions.md: its files, its ticket, its command and the output."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator

import pytest

from tests.support.model.chat_server import Calls, ChatServer, Says, chat_server
from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import ROOT, Orga, an_orga
from tests.support.runs.decisions import TRIAGE, proposal, triage_fields

GUIDE = (ROOT / "docs" / "grounded-decisions.md").read_text()
BELIEVES = proposal(triage_fields("critical", 250_000), rationale="The ticket says so.")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatServer]:
    reads = Calls("read_file", {"path": "tickets/4712.md"})
    with chat_server(reads, Calls("decide", BELIEVES), Says(["severity = critical"])) as server:
        yield server


@pytest.fixture(scope="module")
def orga(chat: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(TRIAGE, folder, dirs_exist_ok=True)
    urls = json.dumps({"openai-compatible": chat.url})
    env = an_orga(
        folder,
        tmp_path_factory.mktemp("home"),
        ORGA_MODELS__DEFAULT="openai-compatible:m",
        ORGA_MODELS__BASE_URLS=urls,
    ).env
    command = InlineOrga(folder, env)
    yield command
    command("server", "--stop")


@pytest.mark.parametrize(("language", "file"), [("toml", "orga.toml"), ("text", "tickets/4712.md")])
def test_the_guide_shows_the_example(language: str, file: str) -> None:
    assert block(language) == (TRIAGE / file).read_text()


def test_the_run_of_the_guide(orga: Orga) -> None:
    """Run the guide's command, then check what the guide says of a run without its facts."""
    words = shlex.split(block("sh").replace("\\\n", " "))[1:]
    done = orga(*words, "--json")
    assert done.code == 0, done.err
    data = json.loads(done.out)["data"]
    data["decisions"]["route"]["declaration"] = "sha256:..."
    assert data == json.loads(block("json"))

    run = re.findall(r"agent-[0-9a-f-]+", done.err)[0]
    verified = orga("verify", run)
    assert (verified.code, "✓ decisions" in verified.out) == (0, True), verified.out
    assert "decided route: severity=high, page=support (rule: capped)" in orga("journal", run).out
    unfounded = orga(*words[:4], "--json")
    assert unfounded.code == 2
    assert "trusted_context.customer.tier: is missing, give one of free, enterprise" in unfounded.err + unfounded.out
