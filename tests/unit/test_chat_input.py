"""Where the messages of a chat come from: keys of a terminal, lines of a pipe, one of the command line."""

import asyncio
import io
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input

from orga.client.cli.chat.keyboard import Keyboard
from orga.client.cli.chat.source import Left, OneMessage, PipedLines
from orga.client.cli.exit_codes import UsageError

ENTER, ALT_ENTER, CTRL_C, CTRL_D, UP = "\r", "\x1b\r", "\x03", "\x04", "\x1b[A"


def clears() -> str:
    return "clears"


async def read(source: OneMessage | PipedLines) -> list[str]:
    found = list[str]()
    while True:
        try:
            found.append(await source.read(clears))
        except Left:
            return found


async def typed(file: Path, keys: str, ctrl_c: Callable[[], str] = clears) -> str:
    with create_pipe_input() as keyboard, create_app_session(input=keyboard):
        keyboard.send_text(keys)
        return await asyncio.wait_for(Keyboard(file, lambda: "› ", lambda: "").read(ctrl_c), 20)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        pytest.param(f"one{ENTER}", "one", id="a line"),
        pytest.param(f"one{ALT_ENTER}two{ENTER}", "one\ntwo", id="Alt-Enter begins another"),
        pytest.param(f"one\\{ENTER}two{ENTER}", "one\ntwo", id="so does a backslash at the end"),
        pytest.param(f"\x1b[200~one\ntwo\x1b[201~{ENTER}", "one\ntwo", id="what is pasted is one message"),
        pytest.param(f"gone{CTRL_C}said{ENTER}", "said", id="Ctrl-C clears what is typed"),
        pytest.param(ENTER, "", id="an empty line"),
    ],
)
async def test_keys_become_a_message(tmp_path: Path, keys: str, message: str) -> None:
    assert await typed(tmp_path / "typed", keys) == message


@pytest.mark.parametrize("keys", [CTRL_D, CTRL_C])
async def test_an_empty_line_is_left(tmp_path: Path, keys: str) -> None:
    with pytest.raises(Left) as left:
        await typed(tmp_path / "typed", keys)
    assert left.value.code == 0


async def test_ctrl_c_amid_a_turn_keeps_what_is_typed_and_leaves_at_once_the_second_time(tmp_path: Path) -> None:
    does = iter(["interrupts", "leaves"])
    with pytest.raises(Left) as left:
        await typed(tmp_path / "typed", f"half{CTRL_C}{CTRL_C}", lambda: next(does))
    assert left.value.code == 130
    assert await typed(tmp_path / "typed", f"half{CTRL_C} a word{ENTER}", lambda: "interrupts") == "half a word"


async def test_what_was_typed_comes_back_in_the_next_chat_and_is_the_users_alone(tmp_path: Path) -> None:
    file = tmp_path / "typed"
    await typed(file, f"remember me{ENTER}")
    assert await typed(file, f"{UP}{ENTER}") == "remember me"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_each_line_of_a_pipe_is_a_message_and_empty_ones_are_none() -> None:
    assert await read(PipedLines(io.BytesIO("one\n\n  \nzwei ü\r\nlast".encode()))) == ["one", "zwei ü", "last"]


async def test_a_pipe_tells_whether_lines_are_left_that_say_something() -> None:
    source = PipedLines(io.BytesIO(b"one\ntwo\n\n"))
    assert await source.read(clears) == "one"
    while not source.has_more():
        await asyncio.sleep(0)
    assert await source.read(clears) == "two"
    with pytest.raises(Left):
        await source.read(clears)
    assert not source.has_more()


async def test_a_line_that_is_no_text_is_named() -> None:
    with pytest.raises(UsageError, match="line 2 of standard input is not UTF-8 text"):
        await read(PipedLines(io.BytesIO(b"one\n\xff\n")))


async def test_one_message_is_said_once() -> None:
    assert await read(OneMessage("two\nlines")) == ["two\nlines"]
