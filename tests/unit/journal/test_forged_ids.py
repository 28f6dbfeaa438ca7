"""A run id must look like what it is. Other ids are refused at the start, and no command is shown for them."""

import asyncio
import shlex
from typing import Any

import pytest

from orga.client.cli.inspect.inbox import inbox_entry_lines
from orga.client.cli.main import run_command
from orga.client.cli.shown.decisions import requeue_command
from orga.client.runs.agents import new_run_id, start_agent
from orga.client.runs.inbox import InboxEntry
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tool_calls.recovery import DeadLetter
from tests.support.values.held import a_call, asking
from tests.support.values.statuses import NOW


def a_letter() -> DeadLetter:
    return DeadLetter(letter_id="1.0", call=ToolCall(call_id="c", name="t"), key="k", error="E", at=NOW)


@pytest.mark.parametrize("run_id", ["--all", "--by=ada", "a\nb", "agent\u202e1", " agent", "agent  1"])
def test_no_command_is_shown_for_a_deceptive_id(run_id: str) -> None:
    shown = inbox_entry_lines(InboxEntry(run_id, "a", "approval", "q", "orga worker", NOW, asking(a_call())), NOW)
    assert shown[-1].startswith("  → no command")
    assert requeue_command(run_id, a_letter(), is_over=False).startswith("no command")


@pytest.mark.parametrize("run_id", ["agent-1", "a run; rm -rf $HOME", "nacht/lauf:3", "Prüfung-ä"])
def test_an_id_that_can_be_typed_is_accepted(run_id: str) -> None:
    assert new_run_id(run_id) == run_id
    assert shlex.split(requeue_command(run_id, a_letter(), is_over=False))[2] == run_id


REFUSED_IDS = ["", " ", "a\nb", "a\tb", "a\x1b[2J", "a\u202eb", "a\u200bb", "a\u2028b", "a\x00b", "--all", "a  b", "a "]


@pytest.mark.parametrize("run_id", REFUSED_IDS)
def test_an_unreadable_id_is_refused_before_anything_starts(run_id: str) -> None:
    client: Any = None
    with pytest.raises(InvalidInput, match="id "):
        asyncio.run(start_agent(client, "task", workflow_id=run_id))
    with pytest.raises(InvalidInput, match="task_queue"):
        asyncio.run(start_agent(client, "task", task_queue=run_id))


@pytest.mark.parametrize("run_id", REFUSED_IDS[1:])
@pytest.mark.parametrize("command", [["run", "x"], ["fork", "agent-1", "--to-iteration", "1"]])
def test_the_command_line_refuses_an_unreadable_id_without_a_server(
    command: list[str], run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*command, f"--id={run_id}"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("orga: id ")
