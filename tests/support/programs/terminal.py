"""A command at a terminal, with a person who types."""

import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from tests.support.programs.orga_command import COMMAND, Orga

COLUMNS, LINES = 100, 30
SHOWN_WITHIN_S = 60.0
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[=>]")


@dataclass
class Terminal:
    """A terminal with its screen and its keyboard."""

    process: subprocess.Popen[bytes]
    keyboard: int
    raw: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        """Read continuously. The terminal reports its cursor position on request."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """All output, without control sequences."""
        return ESCAPE.sub(b"", bytes(self.raw)).decode(errors="replace")

    def shows(self, pattern: str, after: int = 0) -> int:
        """Wait for this text from a position on, and return where it ends."""
        deadline = time.monotonic() + SHOWN_WITHIN_S
        while time.monotonic() < deadline:
            if found := re.compile(pattern).search(self.text, after):
                return found.end()
            time.sleep(0.05)
        raise AssertionError(f"{pattern!r} is not shown: {self.text[after:]}")

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self.keyboard, keys.encode())

    def code(self) -> int:
        """Wait for the command's end."""
        code = self.process.wait(timeout=60)
        self._reader.join(timeout=10)
        return code

    def _read(self) -> None:
        while True:
            try:
                shown = os.read(self.keyboard, 65_536)
            except OSError:
                return
            self.raw += shown
            if b"\x1b[6n" in shown:
                os.write(self.keyboard, b"\x1b[1;1R")


def at_a_terminal(orga: Orga, *arguments: str) -> AbstractContextManager[Terminal]:
    """Run a command at its own terminal."""
    return program_at_a_terminal(orga, *COMMAND, *arguments)


@contextmanager
def program_at_a_terminal(orga: Orga, *command: str) -> Generator[Terminal]:
    """Run a program at its own terminal, in the folder and environment of the command line."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    env = orga.env | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=orga.folder,
        env=env,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
