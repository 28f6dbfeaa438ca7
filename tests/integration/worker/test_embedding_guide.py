"""The Python code in docs/embedding.md and README runs as printed, with no other worker. So does the example."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
from temporalio.client import Client

from tests.support.programs.noted_folder import home
from tests.support.programs.orga_command import ROOT, Orga, an_orga

__all__ = ["home"]


DESK = ROOT / "examples" / "desk"
EVENTS = ROOT / "examples" / "events"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
GUIDE = (ROOT / "docs" / "embedding.md").read_text()
EARLIER = next(block for block in PYTHON.findall(GUIDE) if '"messages"' in block)
TIMELINE = next(block for block in PYTHON.findall(GUIDE) if "timelines_of" in block)
ON = """
import asyncio

import orga
from orga import Agent, start_agent, worker
from orders import look_up_order


async def main():
    async with worker(agents=[Agent("clerk", tools=[look_up_order])]) as client:
    EARLIER
        result, talk = await handle.result(), await handle.conversation()
        print(result.termination.reason, [message.role for message in talk if message.role != "system"])
        print(talk)
        run_id = handle.id
        TIMELINE
        print(page.total, found.items)


if __name__ == "__main__":
    asyncio.run(main())
"""
"""A script around the blocks with an earlier conversation and with a timeline."""


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Orga:
    """A folder with documents, without a worker."""
    shutil.copytree(ROOT / "examples" / "library", tmp_path / "library")
    (tmp_path / "README.md").write_text("# Project\n\nRetries are configured with `max_attempts`.\n")
    return an_orga(tmp_path, home)


def run(orga: Orga, *arguments: str, **env: str) -> str:
    """Run Python in the folder to its end, and return its output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=orga.folder,
        env=orga.env | env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param("README.md", "max_attempts", id="README"),
        pytest.param("docs/embedding.md", "loans.md", id="the guide's, with an agent and a tool in it"),
    ],
)
def test_the_script_of_a_document_runs_as_printed(document: str, expected: str, project: Orga) -> None:
    block = next(each for each in PYTHON.findall((ROOT / document).read_text()) if "asyncio.run(" in each)
    (project.folder / "script.py").write_text(block)
    assert expected in run(project, "script.py")


def test_the_guide_to_sessions_sends_an_untaken_message_again(project: Orga) -> None:
    """Both blocks are in one script: the message of the second comes before the end of the first."""
    script, untaken = PYTHON.findall((ROOT / "docs" / "sessions.md").read_text())
    end = "        await session.close()\n"
    assert end in script
    further = indent(f"{untaken}print(turn.turn, turn.termination.reason)\n", " " * 8)
    (project.folder / "script.py").write_text(script.replace(end, further + end))
    output = run(project, "script.py")
    assert "2 completed" in output
    assert "3 completed" in output


def test_the_guide_shows_the_code_of_the_examples() -> None:
    code = "\n".join(file.read_text() for folder in (DESK, EVENTS) for file in folder.glob("*.py"))
    shown = PYTHON.findall(GUIDE)[1:]
    assert len(shown) == 7
    assert [block for block in shown if block not in code] == [EARLIER, TIMELINE]


def test_a_run_continues_the_conversation_that_the_guide_shows(client: Client, tmp_path: Path) -> None:
    here = an_orga(Path(shutil.copytree(DESK, tmp_path / "desk")), tmp_path / "home")
    script = ON.replace("    EARLIER\n", indent(EARLIER, " " * 8)).replace(
        "        TIMELINE\n", indent(TIMELINE, " " * 8)
    )
    (here.folder / "script.py").write_text(script)
    output = run(here, "script.py", TEMPORAL_ADDRESS=client.service_client.config.target_host)
    assert output.startswith("completed ['user', 'assistant', 'tool', 'assistant', 'user', 'assistant']\n")
    assert "It was sent on Monday." in output
    assert "FoundText(iteration=" in output.splitlines()[-1]


def test_the_example_answers_with_its_own_workflow_activity_and_tool(client: Client, tmp_path: Path) -> None:
    """The command is that of the guide, on a server that the example starts itself."""
    here = an_orga(Path(shutil.copytree(DESK, tmp_path / "desk")), tmp_path / "home")
    (typed,) = re.findall(r'^python (app\.py) "(.*)"$', GUIDE, re.MULTILINE)
    output = run(here, *typed, TEMPORAL_ADDRESS=client.service_client.config.target_host)
    (letter,) = (here.folder / "outbox").iterdir()
    assert output.strip() == letter.read_text().strip()
    assert "ORD-7: two lamps, sent on Monday by parcel" in output, "the result of the application's tool"
    assert "three working days" in output, "a sentence of the handbook"
    assert "Please look at this one" not in output
