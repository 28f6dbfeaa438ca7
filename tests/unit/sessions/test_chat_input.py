"""The sources of chat messages: a terminal, a pipe, or an argument of the command."""

import asyncio
import io
import math
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input

from orga.client.cli.chat.screen import MAX_QUEUED_LINES, ChatExit, Keyboard, OneMessage, PipedLines
from orga.client.cli.exit_codes import UsageError

ENTER, ALT_ENTER, CTRL_C, CTRL_D, UP = "\r", "\x1b\r", "\x03", "\x04", "\x1b[A"


def clears() -> str:
    return "clears"


async def read(source: OneMessage | PipedLines) -> list[str]:
    found = list[str]()
    while True:
        try:
            found.append(await source.read(clears))
        except ChatExit:
            return found


async def typed(file: Path, keys: str, ctrl_c: Callable[[], str] = clears) -> str:
    with create_pipe_input() as keyboard, create_app_session(input=keyboard):
        keyboard.send_text(keys)
        return await asyncio.wait_for(Keyboard(file, lambda: "› ", lambda: "").read(ctrl_c), 20)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        pytest.param(f"one{ENTER}", "one", id="a line"),
        pytest.param(f"one{ALT_ENTER}two{ENTER}", "one\ntwo", id="Alt-Enter adds a line"),
        pytest.param(f"one\\{ENTER}two{ENTER}", "one\ntwo", id="a backslash at the end adds a line"),
        pytest.param(f"\x1b[200~one\ntwo\x1b[201~{ENTER}", "one\ntwo", id="pasted text is one message"),
        pytest.param(f"gone{CTRL_C}said{ENTER}", "said", id="Ctrl-C clears the line"),
        pytest.param(ENTER, "", id="an empty line"),
    ],
)
async def test_keys_become_a_message(tmp_path: Path, keys: str, message: str) -> None:
    assert await typed(tmp_path / "typed", keys) == message


@pytest.mark.parametrize("keys", [CTRL_D, CTRL_C])
async def test_ctrl_c_or_ctrl_d_on_an_empty_line_exits(tmp_path: Path, keys: str) -> None:
    with pytest.raises(ChatExit) as left:
        await typed(tmp_path / "typed", keys)
    assert left.value.code == 0


async def test_ctrl_c_during_a_turn_keeps_the_typed_text_and_exits_the_second_time(tmp_path: Path) -> None:
    does = iter(["interrupts", "leaves"])
    with pytest.raises(ChatExit) as left:
        await typed(tmp_path / "typed", f"half{CTRL_C}{CTRL_C}", lambda: next(does))
    assert left.value.code == 130
    assert await typed(tmp_path / "typed", f"half{CTRL_C} a word{ENTER}", lambda: "interrupts") == "half a word"


async def test_typed_messages_are_kept_for_the_next_chat_in_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "typed"
    await typed(file, f"remember me{ENTER}")
    assert await typed(file, f"{UP}{ENTER}") == "remember me"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_each_line_of_a_pipe_is_a_message_and_empty_ones_are_skipped() -> None:
    assert await read(PipedLines(io.BytesIO("one\n\n  \nzwei ü\r\nlast".encode()))) == ["one", "zwei ü", "last"]


async def test_a_pipe_knows_whether_more_messages_follow() -> None:
    source = PipedLines(io.BytesIO(b"one\ntwo\n\n"))
    assert await source.read(clears) == "one"
    while not source.has_more():
        await asyncio.sleep(0)
    assert await source.read(clears) == "two"
    with pytest.raises(ChatExit):
        await source.read(clears)
    assert not source.has_more()


async def test_a_line_that_is_not_text_is_reported_with_its_number() -> None:
    with pytest.raises(UsageError, match="line 2 of standard input is not UTF-8 text"):
        await read(PipedLines(io.BytesIO(b"one\n\xff\n")))


async def test_a_pipe_is_read_only_a_few_lines_ahead() -> None:
    """A pipe may never end, and the chat does not wait for it at the end."""
    given = io.BytesIO(b"y\n" * 100_000)
    source = PipedLines(given)
    for _ in range(3):
        assert await source.read(clears) == "y"
    assert given.tell() <= len(b"y\n") * (MAX_QUEUED_LINES + 10)


async def test_an_endless_line_is_refused() -> None:
    with pytest.raises(UsageError, match="line 1 of standard input is longer than 1,000,000 bytes"):
        await read(PipedLines(io.BytesIO(b"y" * 3_000_000)))


class Unreadable(io.BytesIO):
    """Fails after its first line."""

    def readline(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise OSError(5, "Input/output error")
        return super().readline(size)


async def test_an_unreadable_pipe_is_reported() -> None:
    source = PipedLines(Unreadable(b"one\ntwo\n"))
    assert await source.read(clears) == "one"
    with pytest.raises(OSError, match="Input/output error"):
        await asyncio.wait_for(source.read(clears), 20)


async def test_the_start_time_of_a_line_is_known(tmp_path: Path) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys):
        keyboard = Keyboard(tmp_path / "typed", lambda: "› ", lambda: "")
        reading = asyncio.create_task(keyboard.read(clears))
        assert not keyboard.input_began_before(math.inf), "nothing was typed"
        keys.send_text("half")
        while not keyboard.input_began_before(math.inf):
            await asyncio.sleep(0)
        between = time.monotonic()
        keys.send_text(f" a line{ENTER}")
        assert await asyncio.wait_for(reading, 20) == "half a line"
        assert keyboard.input_began_before(between)
        keys.send_text(f"gone{CTRL_C}new{ENTER}")
        assert await asyncio.wait_for(keyboard.read(clears), 20) == "new"
        assert not keyboard.input_began_before(between)


async def test_a_print_error_ends_the_reading(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    with create_pipe_input() as keys, create_app_session(input=keys):
        keyboard = Keyboard(tmp_path / "typed", lambda: "› ", lambda: "")
        reading = asyncio.create_task(keyboard.read(clears))
        keys.send_text("half")
        while not keyboard.input_began_before(math.inf):
            await asyncio.sleep(0)
        keyboard.print_above(full)
        with pytest.raises(OSError, match="No space left"):
            await asyncio.wait_for(reading, 20)
        with pytest.raises(OSError, match="No space left"):
            await keyboard.read(clears)


async def test_one_message_is_read_once() -> None:
    assert await read(OneMessage("two\nlines")) == ["two\nlines"]
