"""`verify` and `audit` report their progress to a caller and on a terminal, and nowhere else."""

import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from temporalio.client import Client

from orga.client.proof.audit import Rejudger, run_audits
from orga.client.proof.verify import verify
from orga.testing import FakeTool, answers, calls
from tests.support.programs.orga_command import COMMAND, Orga, an_orga
from tests.support.runs.loop import WORKER_FACTS, Deny, Ran, a_loop

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
RUN = "agent-long"


async def a_chain(client: Client) -> Ran:
    """Return a run that continued as new after each iteration."""
    async with a_loop(
        client, [calls("look"), calls("look"), answers("done")], FakeTool("look"), setup=EACH_ITERATION
    ) as loop:
        return await loop.run()


def assert_all_events_are_reported(ran: Ran, reported: list[str]) -> None:
    """Assert that each segment is reported from its first to its last event, and never backwards."""
    replays = [
        re.fullmatch(rf"{ran.handle.id}: segment (\d+) of (\d+), event ([\d,]+) of ([\d,]+)", line) for line in reported
    ]
    steps = [[int(number.replace(",", "")) for number in found.groups()] for found in replays if found]
    assert steps == sorted(steps)
    assert {(number, of, events) for number, of, _, events in steps} == {
        (number, len(ran.histories), len(history.events)) for number, history in enumerate(ran.histories, 1)
    }
    assert all(event <= events for _, _, event, events in steps)


async def test_a_verification_reports_its_progress(client: Client) -> None:
    ran = await a_chain(client)
    reported: list[str] = []
    assert (await verify(client, ran.handle.id, report=reported.append)).ok
    assert_all_events_are_reported(ran, reported)


async def test_an_audit_reports_its_progress(client: Client) -> None:
    ran = await a_chain(client)
    reported: list[str] = []
    found = [each async for each in run_audits(client, [ran.handle.id], Rejudger(Deny()), report=reported.append)]
    assert_all_events_are_reported(ran, reported)
    assert [line for line in reported if "proposals" in line] == [
        f"{ran.handle.id}: {number} proposals judged again" for number in range(len(found[0].judgements))
    ]


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    """Commands in a folder with a run that has ended."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "notes.md").write_text("# Notes\n\nThe retry limit is five attempts.\n")
    command = an_orga(folder, tmp_path_factory.mktemp("home"))
    assert command("run", "What is the retry limit?", "--id", RUN).code == 0
    yield command
    command("server", "--stop")


@pytest.mark.parametrize("arguments", [("verify", RUN), ("audit", RUN, "--engine", "default")], ids=["verify", "audit"])
def test_a_terminal_shows_the_progress_and_stdout_does_not(orga: Orga, arguments: tuple[str, ...]) -> None:
    ours, theirs = os.openpty()
    env = orga.env | {"TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=theirs, env=env, cwd=orga.folder
    ) as it:
        os.close(theirs)
        screen = b"".join(iter(lambda: _read(ours), b""))
        out, _ = it.communicate()
    os.close(ours)
    assert it.returncode == 0, screen
    assert re.search(rf"{RUN}: (segment 1 of 1, event \d|\d+ proposals judged)".encode(), screen)
    assert b"segment 1 of 1" not in out


@pytest.mark.parametrize("arguments", [("verify", RUN), ("audit", RUN, "--engine", "default")], ids=["verify", "audit"])
def test_without_a_terminal_only_the_summary_is_printed(orga: Orga, arguments: tuple[str, ...]) -> None:
    done = orga(*arguments)
    assert (done.code, len(done.err.splitlines())) == (0, 1), done.err


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""
