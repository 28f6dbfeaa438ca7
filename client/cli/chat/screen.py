"""The input and the output of `orga chat`: where messages come from, and how turns are shown."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, Protocol

from rich.console import Console
from rich.text import Text

from orga.client.cli.exit_codes import UsageError, ending_exit_code
from orga.client.cli.interrupts import CTRL_C_EXIT_CODE
from orga.client.cli.live.screens import REDRAW_S, STYLES, Screen, answer_label, live_block, raw_keyboard
from orga.client.cli.live.watch import result_facts, show_answer
from orga.client.cli.shown.decisions import HeldCall, held_call_text, held_calls
from orga.client.cli.shown.progress import Progress
from orga.client.cli.shown.text import StyledLine, is_quiet, write_json, write_note, write_warning
from orga.client.server.home import prepare_home
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.sessions.session_result import TurnResult
from orga.workflows.types.text import escaped_line

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

InputMode = Literal["typed", "piped", "one"]
"""The origin of messages.

- `typed`: a person types them.
- `piped`: the lines of a pipe. Each is sent after the answer to the previous one.
- `one`: a single message, sent exactly as given, even if it looks like a command.
"""

CtrlCEffect = Literal["interrupts", "clears", "leaves"]
"""The effect of Ctrl-C.

- `interrupts`: ends the current turn.
- `clears`: clears the input, or leaves if nothing is typed.
- `leaves`: leaves at once.
"""


class MessageSource(Protocol):
    async def read(self, ctrl_c: "Callable[[], CtrlCEffect]") -> str:
        """Return the next message, or raise `ChatExit`. A keyboard calls `ctrl_c` when that key is pressed."""
        ...

    def has_more(self) -> bool: ...


class ChatView(Protocol):
    """Shows the lines of a chat. The progress of the current turn is shown by a `Screen`."""

    is_busy: bool

    def show_line(self, line: StyledLine, at: datetime) -> None: ...

    def note(self, text: str) -> None: ...

    def lines(self, *lines: str) -> None:
        """Show lines that the person asked for."""
        ...

    def show_turn(self, turn: TurnResult) -> None: ...

    def show_calls(self, calls: Iterable[HeldCall]) -> None: ...

    def shown_call_ids(self) -> frozenset[str]:
        """Return the approval ids of the calls that were shown."""
        ...

    def take_answer(self, text: str) -> bool:
        """Take a line as the answer to a turn's question, and return whether it is one."""
        ...


class ChatExit(Exception):
    """The source has no more messages, or the person leaves."""

    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code = code
        """The exit code. With 0, the chat exits with the code of its turns."""


MAX_QUEUED_LINES = 100
"""Lines of a pipe that are read before the earlier ones are sent. It bounds the memory."""

MAX_LINE_BYTES = 1_000_000
"""Bytes of a line from a pipe. The session's own limit for a message is far lower."""


class OneMessage:
    def __init__(self, text: str) -> None:
        self._texts = [text]

    async def read(self, ctrl_c: Callable[[], str]) -> str:
        """Return the message once. Raise ChatExit the second time."""
        if not self._texts:
            raise ChatExit
        return self._texts.pop()

    def has_more(self) -> bool:
        return bool(self._texts)


class PipedLines:
    """A source that returns each line of standard input as a message. It skips empty lines."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream or sys.stdin.buffer
        self._lines: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._free_slots = threading.Semaphore(MAX_QUEUED_LINES)
        self._line_number = 0
        self._unread_count = 0
        """Lines in the queue that are not empty."""
        self._is_reading = False

    async def read(self, ctrl_c: Callable[[], str]) -> str:
        """Return the next line that is not empty.

        Raises:
            ChatExit: There are no more lines.
            UsageError: The line is not UTF-8 text, or too long.
            OSError: Standard input cannot be read.
        """
        if not self._is_reading:
            self._start_reading(asyncio.get_running_loop().call_soon_threadsafe)
        while line := await self._lines.get():
            if isinstance(line, OSError):
                raise line
            self._free_slots.release()
            self._line_number += 1
            self._unread_count -= bool(line.strip())
            if text := self._decode(line).strip():
                return text
        self._lines.put_nowait(b"")
        raise ChatExit

    def has_more(self) -> bool:
        return self._unread_count > 0

    def _enqueue(self, line: bytes | OSError) -> None:
        self._unread_count += isinstance(line, bytes) and bool(line.strip())
        self._lines.put_nowait(line)

    def _start_reading(self, in_loop: Callable[..., object]) -> None:
        self._is_reading = True

        def read() -> None:
            with suppress(RuntimeError):  # the loop has ended
                try:
                    while line := self._stream.readline(MAX_LINE_BYTES + 1):
                        self._free_slots.acquire()
                        in_loop(self._enqueue, line)
                    in_loop(self._enqueue, b"")
                except OSError as error:
                    in_loop(self._enqueue, error)

        # a thread, as a file cannot be awaited; not an executor's, as the loop waits for those when it ends
        threading.Thread(target=read, daemon=True, name="lines of standard input").start()

    def _decode(self, line: bytes) -> str:
        where = f"line {self._line_number} of standard input"
        if len(line) > MAX_LINE_BYTES:
            raise UsageError(
                f"{where} is longer than {MAX_LINE_BYTES:,} bytes. Put it into a file that the agent reads"
            )
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{where} is not UTF-8 text (byte {error.start})") from None


class Keyboard:
    """Reads messages from an input line. Output is printed above the line, and the live block is shown below it."""

    def __init__(self, file: Path, label: Callable[[], str], render_block: Callable[[], str]) -> None:
        """Prepare the line.

        Args:
            file: Keeps the typed lines for the next chat. Only the user may read it.
            label: Returns the text before the line.
            render_block: Returns the text below the line, with colours.
        """
        self._file = file
        self._label = label
        self._render_block = render_block
        self._session: PromptSession[str] | None = None
        self._is_open = False
        self._input_began_at: float | None = None
        self._failure: BaseException | None = None
        """The error of an output that failed. `read` raises it."""

    async def read(self, ctrl_c: Callable[[], str]) -> str:
        """Return the next message. `ctrl_c` is called on that key, and returns its effect.

        Raises:
            ChatExit: On Ctrl-D, or on Ctrl-C while nothing is typed.
            OSError: The output above the line could not be printed.
        """
        if self._failure is not None:
            raise self._failure
        session = self._session = self._session or self._create_session()
        from prompt_toolkit.formatted_text import ANSI

        self._is_open, self._input_began_at = True, None
        try:
            return await session.prompt_async(
                self._label,
                key_bindings=_key_bindings(ctrl_c),
                bottom_toolbar=lambda: ANSI(block) if (block := self._render_block()) else None,
                refresh_interval=REDRAW_S,
                handle_sigint=False,
            )
        except EOFError:
            raise ChatExit from None
        finally:
            self._is_open = False

    def input_began_before(self, moment: float) -> bool:
        """Return whether the current or last input began before that moment of `time.monotonic()`."""
        return self._input_began_at is not None and self._input_began_at < moment

    def has_more(self) -> bool:
        """Return False: a person can type more, but does not have to."""
        return False

    def print_above(self, show: Callable[[], None]) -> None:
        """Print above the input line, or at the cursor while there is none. Outputs keep the order of the calls."""
        if not self._is_open:
            show()
            return
        from prompt_toolkit.application import run_in_terminal

        asyncio.ensure_future(run_in_terminal(show)).add_done_callback(self._note_failure)

    def _note_failure(self, printed: "asyncio.Future[None]") -> None:
        if printed.cancelled() or (failure := printed.exception()) is None:
            return
        self._failure = failure
        if self._session is not None and self._session.app.is_running and not self._session.app.is_done:
            self._session.app.exit(exception=failure)

    def _create_session(self) -> "PromptSession[str]":
        from prompt_toolkit import PromptSession  # the import takes a tenth of a second
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.output import create_output
        from prompt_toolkit.styles import Style

        self._file.touch(mode=0o600)
        session = PromptSession[str](
            input=raw_keyboard(),
            output=create_output(sys.stderr),
            history=FileHistory(str(self._file)),
            multiline=True,
            prompt_continuation=lambda width, _line, _wrapped: "· ".rjust(width),
            style=Style.from_dict({"bottom-toolbar": "noreverse"}),
            reserve_space_for_menu=0,
        )
        session.default_buffer.on_text_changed += self._note_text
        return session

    def _note_text(self, buffer: "Buffer") -> None:
        self._input_began_at = (self._input_began_at or time.monotonic()) if buffer.text else None


def _key_bindings(ctrl_c: Callable[[], str]) -> "KeyBindings":
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def enter(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\" and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    def on_ctrl_c(event: "KeyPressEvent") -> None:
        effect = ctrl_c()
        if effect == "leaves":
            event.app.exit(exception=ChatExit(CTRL_C_EXIT_CODE))
        elif effect == "clears" and event.current_buffer.text:
            event.current_buffer.text = ""
        elif effect == "clears":
            event.app.exit(exception=ChatExit())

    def newline(event: "KeyPressEvent") -> None:
        event.current_buffer.newline(copy_margin=False)

    keys.add("enter")(enter)
    keys.add("escape", "enter")(newline)
    keys.add("c-c")(on_ctrl_c)
    return keys


@dataclass(frozen=True)
class TurnPrinter:
    """Shows the turns of one session as text, or each as one line of JSON."""

    session: str
    as_json: bool

    def show(self, turn: TurnResult) -> None:
        """Write a turn's answer to stdout, and its facts to stderr."""
        if self.as_json:
            write_json({"session": self.session, **turn.model_dump(mode="json")}, indent=None)
        elif turn.output:
            show_answer(turn.output)
        write = write_warning if ending_exit_code(turn.termination.reason) else write_note
        write(f"turn {turn.turn}: {result_facts(turn)}")


PROMPT = "› "


class _OpenQuestion(NamedTuple):
    wait: ShownQuestion
    answer: asyncio.Future[str]
    shown_at: float
    """A time of `time.monotonic()`."""


class ChatScreen:
    """Shows a session above the input line. Questions of a turn are answered in that line too."""

    def __init__(self, printer: TurnPrinter) -> None:
        self._printer = printer
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self.keyboard = Keyboard(prepare_home().chat_input, self._prompt_label, self._rendered_block)
        self.is_busy = False
        """True while a turn is carried out. Only then is a live block drawn."""
        self._progress = Progress()
        self._open_question: _OpenQuestion | None = None
        self._shown_call_ids = set[str]()

    def show_line(self, line: StyledLine, at: datetime) -> None:
        if not is_quiet():
            self._print(Text(escaped_line(line.text), style=STYLES[line.tone]))

    def show_progress(self, progress: Progress) -> None:
        """Keep the progress for the next drawing, and print each held call once."""
        self._progress = progress
        for wait in progress.waiting:
            self.show_calls(held_calls(wait))

    def show_calls(self, calls: Iterable[HeldCall]) -> None:
        for call in calls:
            if str(call["id"]) not in self._shown_call_ids:
                self._shown_call_ids.add(str(call["id"]))
                self.lines(f"? waits for your approval: {held_call_text(call)} → /approve or /deny")

    def shown_call_ids(self) -> frozenset[str]:
        return frozenset(self._shown_call_ids)

    def note(self, text: str) -> None:
        if not is_quiet():
            self._print(Text(escaped_line(text), style="dim"))

    def lines(self, *lines: str) -> None:
        self.keyboard.print_above(lambda: write_warning(*lines))

    def show_turn(self, turn: TurnResult) -> None:
        self.is_busy = False
        self.keyboard.print_above(lambda: self._printer.show(turn))

    async def read_answer(self, wait: ShownQuestion) -> str:
        """Return the next typed line. An empty line leaves the question for later."""
        typed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open_question = _OpenQuestion(wait, typed, time.monotonic())
        self._print(Text(escaped_line(f"? asks: {wait.question}"), style=STYLES["person"]))
        try:
            return await typed
        finally:
            self._open_question = None

    def take_answer(self, text: str) -> bool:
        """Take a line as the answer to the open question, and return whether it is one.

        A line that was begun before the question was shown is not an answer: its author had not seen the question.
        """
        if (
            self._open_question is None
            or self._open_question.answer.done()
            or self.keyboard.input_began_before(self._open_question.shown_at)
        ):
            return False
        self._open_question.answer.set_result(text)
        return True

    def close(self) -> None:
        """Do nothing: all that was shown stays on the screen."""

    def _prompt_label(self) -> str:
        if self._open_question is None or self.keyboard.input_began_before(self._open_question.shown_at):
            return PROMPT
        return answer_label(self._open_question.wait)

    def _print(self, text: Text) -> None:
        self.keyboard.print_above(lambda: self._console.print(text))

    def _rendered_block(self) -> str:
        if not self.is_busy:
            return ""
        with self._console.capture() as captured:
            self._console.print(live_block(self._progress, datetime.now(UTC)))
        return captured.get().rstrip("\n")


class PlainChat:
    """Shows a session whose messages come from a script."""

    def __init__(self, screen: Screen, printer: TurnPrinter) -> None:
        self._screen = screen
        self._printer = printer
        self.is_busy = False

    def show_line(self, line: StyledLine, at: datetime) -> None:
        self._screen.show_line(line, at)

    def note(self, text: str) -> None:
        self._screen.note(text)

    def lines(self, *lines: str) -> None:
        write_warning(*lines)

    def show_turn(self, turn: TurnResult) -> None:
        self._printer.show(turn)

    def show_calls(self, calls: Iterable[HeldCall]) -> None:
        """Do nothing: a script cannot decide about calls."""

    def shown_call_ids(self) -> frozenset[str]:
        """Return the empty set: no call was shown."""
        return frozenset()

    def take_answer(self, text: str) -> bool:
        """Return False: the next line of a script is always the next message."""
        return False
