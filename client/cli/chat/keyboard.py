"""The line at the foot of a terminal in which one types to a session, several lines long where one likes."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orga.client.cli.chat.source import Left
from orga.client.cli.interrupts import CTRL_C

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

REDRAWN_S = 0.25


class Keyboard:
    """Reads message after message; what is printed meanwhile stands above the line, what stands is below it."""

    def __init__(self, file: Path, label: Callable[[], str], standing: Callable[[], str]) -> None:
        """Take no key yet.

        Args:
            file: Keeps what is typed for the next chat; the user's alone.
            label: What stands ahead of the line now.
            standing: What is shown below it now, with its colours; "" for nothing.
        """
        self._file = file
        self._label = label
        self._standing = standing
        self._session: PromptSession[str] | None = None
        self._is_open = False
        self._begun_at: float | None = None
        self._failure: BaseException | None = None
        """Of what could not be printed: it ends the reading."""

    async def read(self, ctrl_c: Callable[[], str]) -> str:
        """Return the next message.

        Args:
            ctrl_c: Called at Ctrl-C, returns what that does: `interrupts`, `clears` or `leaves`.

        Raises:
            Left: At Ctrl-D, or at Ctrl-C, with nothing typed.
            OSError: What stood to be printed above could not be.
        """
        if self._failure is not None:
            raise self._failure
        session = self._session = self._session or self._opened()
        from prompt_toolkit.formatted_text import ANSI

        self._is_open, self._begun_at = True, None
        try:
            return await session.prompt_async(
                self._label,
                key_bindings=_keys(ctrl_c),
                bottom_toolbar=lambda: ANSI(standing) if (standing := self._standing()) else None,
                refresh_interval=REDRAWN_S,
                handle_sigint=False,
            )
        except EOFError:
            raise Left from None
        finally:
            self._is_open = False

    def was_begun_before(self, moment: float) -> bool:
        """Whether what is typed, or was typed last, was begun before that moment of `time.monotonic()`."""
        return self._begun_at is not None and self._begun_at < moment

    def has_more(self) -> bool:
        """Whether a script is not at its end; nobody's typing is one."""
        return False

    def above(self, show: Callable[[], None]) -> None:
        """Print above the line, or where the cursor stands while there is none; what came first stands first."""
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

    def _opened(self) -> "PromptSession[str]":
        from prompt_toolkit import PromptSession  # a tenth of a second that other commands do without
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.output import create_output
        from prompt_toolkit.styles import Style

        self._file.touch(mode=0o600)
        session = PromptSession[str](
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
        self._begun_at = (self._begun_at or time.monotonic()) if buffer.text else None


def _keys(ctrl_c: Callable[[], str]) -> "KeyBindings":
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def enter(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\" and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    def interrupted(event: "KeyPressEvent") -> None:
        does = ctrl_c()
        if does == "leaves":
            event.app.exit(exception=Left(CTRL_C))
        elif does == "clears" and event.current_buffer.text:
            event.current_buffer.text = ""
        elif does == "clears":
            event.app.exit(exception=Left())

    def newline(event: "KeyPressEvent") -> None:
        event.current_buffer.newline(copy_margin=False)

    keys.add("enter")(enter)
    keys.add("escape", "enter")(newline)
    keys.add("c-c")(interrupted)
    return keys
