"""A person sees the whole call, its approvers, and the exact command."""

from collections.abc import AsyncGenerator

import pytest

from orga.client.cli.inspect.status import history_status
from orga.client.cli.live.screens import remarks
from orga.client.cli.shown.decisions import commands_text, held_call_table, held_call_text
from orga.client.cli.shown.progress import Progress
from orga.client.cli.shown.status_text import status_lines
from orga.workflows.decisions.control.notifications import decision_commands
from orga.workflows.types.status import JournalEntry
from tests.support.values.entries import an_entry
from tests.support.values.held import a_call, asking
from tests.support.values.statuses import NOW, a_status


def test_held_calls_are_shown_in_one_table_with_full_arguments() -> None:
    long = '{"text":"' + "x" * 1_500 + '"}'
    lines = held_call_table([a_call(), a_call("b22", tool="send_mail", arguments=long, approvers=[], reason="")], NOW)
    assert lines == [
        "approval  tool       approvers  expires  arguments",
        'a1        pay        ada, bob   in 23 h  {"amount":7}',
        "  because: money moves",
        f"b22       send_mail  anyone     in 23 h  {long}",
    ]


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        pytest.param("\u200b", "\\u200b", id="without width"),
        pytest.param("\u202e", "\\u202e", id="turns the direction"),
        pytest.param("\x9b31m", "\\u009b31m", id="a control sequence"),
        pytest.param("\x7f", "\\u007f", id="delete"),
        pytest.param("\n", "\\n", id="a line break"),
    ],
)
def test_all_characters_of_the_arguments_are_visible(hidden: str, shown: str) -> None:
    call = a_call(arguments=f'{{"to":"a{hidden}b"}}')
    assert f'"a{shown}b"' in held_call_table([call], NOW)[1]
    assert f'"a{shown}b"' in held_call_text(call)


def test_one_call_is_decided_by_its_id() -> None:
    assert decision_commands("run", asking(a_call())) == ["orga approve run a1", "orga deny run a1"]
    assert commands_text("run", asking(a_call())) == "orga approve run a1 (or orga deny run a1)"


def test_the_command_names_all_shown_calls_so_that_it_approves_no_later_one() -> None:
    assert decision_commands("run", asking(a_call(), a_call("b2")))[0] == "orga approve run a1 b2"


def test_live_view_and_status_show_question_approvers_and_command() -> None:
    status = a_status(waiting=[asking(a_call())])
    [remark] = remarks(Progress(run_id="run").with_status(status, NOW))
    assert remark.startswith('waits for you: pay {"amount":7}: money moves (ada, bob) → orga approve run a1 (or')
    lines = status_lines("run", status)
    [head] = [number for number, line in enumerate(lines) if line.startswith("waits ")]
    assert "ada, bob" in lines[head + 2]
    assert lines[head + 4].strip() == "→ orga approve run a1 (or orga deny run a1)"


async def test_the_history_alone_shows_held_calls() -> None:
    async def entries() -> AsyncGenerator[JournalEntry]:
        yield an_entry("ApprovalRequested", kind="call", **a_call())
        yield an_entry("ApprovalRequested", kind="call", **a_call("b2"))
        yield an_entry("ApprovalResolved", kind="call", id="b2", tool="pay", approved=True)

    reported = await history_status(entries())
    assert [line for line in reported.lines() if line.startswith("waits")] == [
        'waits      call a1: pay {"amount":7}: money moves (ada, bob)'
    ]
