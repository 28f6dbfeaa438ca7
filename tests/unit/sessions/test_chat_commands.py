"""The kinds of lines that people type in a chat."""

from typing import Any

import pytest

from orga.client.cli.chat.talk import (
    COMMANDS,
    ChatMessage,
    CommandCall,
    help_lines,
    last_turn_messages,
    parse_line,
)
from orga.client.cli.exit_codes import UsageError
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.status import ShownMessage


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        pytest.param("What is here?", ChatMessage("What is here?"), id="text is a message"),
        pytest.param("  two\nlines ", ChatMessage("two\nlines"), id="newlines are kept, outer spaces are removed"),
        pytest.param("/etc/passwd is what?", ChatMessage("/etc/passwd is what?"), id="a path is no command"),
        pytest.param("//status is a word", ChatMessage("/status is a word"), id="two slashes stand for one"),
        pytest.param("/status", CommandCall("status"), id="a command"),
        pytest.param(
            "/steer look at\nthe tests", CommandCall("steer", "look at\nthe tests"), id="a command with its text"
        ),
        pytest.param("/interrupt", CommandCall("interrupt"), id="a command without its optional text"),
        pytest.param("", ChatMessage(""), id="nothing"),
    ],
)
def test_a_line_is_a_message_or_a_command(line: str, meant: ChatMessage | CommandCall) -> None:
    assert parse_line(line) == meant


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("/stats", "did you mean 'status'?", id="a misspelt command"),
        pytest.param("/steer", "/steer TEXT", id="without its text"),
        pytest.param("/quit now", "//quit sends the line", id="with an unexpected argument"),
    ],
)
def test_an_unknown_command_is_not_sent_to_the_agent(line: str, expected: str) -> None:
    with pytest.raises(UsageError, match=r".") as refused:
        parse_line(line)
    assert expected in str(refused.value)


def test_every_command_is_listed_in_the_help() -> None:
    assert [line.split()[0] for line in help_lines()[: len(COMMANDS)]] == [f"/{name}" for name in COMMANDS]


def test_the_last_turn_has_the_messages_after_the_last_user_message() -> None:
    call = ToolCall(call_id="c1", name="read_file", arguments={"path": "x"})
    done = [shown("assistant", "", calls=(call,)), shown("tool", "y", tool="read_file")]
    assert last_turn_messages([shown("user", "a"), shown("assistant", "b"), shown("user", "c"), *done]) == done
    assert last_turn_messages([]) == []


def shown(role: str, text: str, **fields: Any) -> ShownMessage:
    plain: dict[str, Any] = {"calls": (), "call_id": None, "tool": None, "is_error": False}
    return ShownMessage(role=role, text=text, **plain | fields)
