"""The examples in the guide of front ends are run as they are, against `orga console` and a worker."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.parts.front_ends import agui_package
from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.orga_command import ROOT

GUIDE = (ROOT / "docs" / "front-ends.md").read_text()
ADDED = "orga console --add-token page --role approver --tokens tokens.json"


def block(language: str, part: str) -> str:
    """Return the block of a language in the guide that has this part."""
    [found] = [
        each for each in re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE) if part in each
    ]
    return found


class Stage(NamedTuple):
    folder: Path
    env: dict[str, str]

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A folder with a README, a worker for it, and the console as the guide starts it, on a free port."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "README.md").write_text("# Project\n\nRetries are configured with `max_attempts`.\n")
    (folder / "node_modules").symlink_to(agui_package() / "node_modules")
    orga = an_inline_orga(folder, tmp_path_factory.mktemp("home"))
    assert ADDED in block("sh", "--add-token")
    token = orga(*ADDED.split()[1:]).out.strip()
    with orga.started("worker") as worker:
        worker.line("polls task queue")
        with orga.started("console", "--tokens", "tokens.json", "--port", "0") as console:
            address = console.line(r"(http://127\.0\.0\.1:\d+)")[1]
            yield Stage(folder, {"PATH": os.environ["PATH"], "ORGA": address, "TOKEN": token})
    orga("server", "--stop")


def test_the_client_of_ag_ui(stage: Stage) -> None:
    (stage.folder / "ask.mjs").write_text(block("js", "HttpAgent"))
    assert "max_attempts" in stage.run("node", "ask.mjs")


def test_a_response_by_curl(stage: Stage) -> None:
    answered = json.loads(stage.run("bash", "-c", block("bash", "/v1/responses")))
    assert (answered["status"], "max_attempts" in answered["output"][-1]["content"][0]["text"]) == ("completed", True)


def test_the_sdk_of_openai(stage: Stage) -> None:
    streamed, _, second = stage.run(sys.executable, "-c", block("python", "OpenAI(")).rpartition("completed ")
    assert "max_attempts" in streamed
    assert second
