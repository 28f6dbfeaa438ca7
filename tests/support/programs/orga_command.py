"""The command line as a subprocess, with its own folder and home."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.values.planted import around_marks, marked_files, planted

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-c", "from orga.client.cli.main import main; main()"]
LINE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Done:
    """The end of a command. Its output contains no planted secret."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        """Fail if the output contains a planted secret."""
        found = around_marks(f"{self.out}\n{self.err}".encode())
        assert not found, found


@dataclass(frozen=True)
class Orga:
    """Runs commands."""

    folder: Path
    env: dict[str, str]

    def __call__(self, *arguments: str, stdin: bytes = b"", **env: str) -> Done:
        """Run a command to its end."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env=self.env | env,
            timeout=100,
            check=False,
        )
        return self.discreet(arguments, Done(done.returncode, done.stdout.decode(), done.stderr.decode()))

    def discreet(self, arguments: Sequence[str], done: Done) -> Done:
        """Return how a command ended. If it stopped the server, assert that no planted secret is in the database."""
        found = marked_files(Path(self.env["ORGA_HOME"])) if arguments[:2] == ("server", "--stop") else {}
        assert not found, found
        return done

    @contextmanager
    def started(self, *arguments: str) -> Generator["Running"]:
        """Run a command during the test, and kill what is left of it at the end."""
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.env,
        )
        running = Running(process)
        try:
            yield running
        finally:
            running.close()


@dataclass
class Running:
    """A running command."""

    process: subprocess.Popen[bytes]
    out: list[str] = field(default_factory=list[str])
    err: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        """Read both streams continuously."""
        self._news = threading.Condition()
        self._open, self._begin = 2, [0, 0]
        """The number of open streams, and the offset in each stream after the last line found."""
        self._threads = [
            threading.Thread(target=self._read, args=(stream, kept), daemon=True)
            for stream, kept in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for thread in self._threads:
            thread.start()

    def line(self, pattern: str) -> re.Match[str]:
        """Wait for a line after those already found, and return the match.

        Lines are ordered within a stream, but not between the two streams.
        """
        with self._news:
            self._news.wait_for(lambda: self._find(pattern) is not None or not self._open, LINE_TIMEOUT_S)
            if (found := self._find(pattern)) is None:
                raise AssertionError(f"no line {pattern!r} in {self.out + self.err}")
            stream, number, match = found
            self._begin[stream] = number + 1
        return match

    def _find(self, pattern: str) -> tuple[int, int, re.Match[str]] | None:
        for stream, kept in enumerate((self.out, self.err)):
            for number in range(self._begin[stream], len(kept)):
                if match := re.search(pattern, kept[number]):
                    return stream, number, match
        return None

    def send(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def code(self) -> int:
        """Wait for the end."""
        code = self.process.wait(timeout=60)
        for thread in self._threads:
            thread.join()
        return code

    def close(self) -> None:
        """Kill the command if it still runs."""
        self.process.kill()
        Done(self.code(), "\n".join(self.out), "\n".join(self.err))

    def _read(self, stream: IO[bytes] | None, kept: list[str]) -> None:
        assert stream is not None
        with stream:
            for line in stream:
                with self._news:
                    kept.append(line.decode().rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._open -= 1
            self._news.notify_all()


def an_orga(folder: Path, home: Path, **env: str) -> Orga:
    """Return a command line without the settings and keys of the person who runs the tests."""
    foreign = ("ORGA_", "TEMPORAL_", "OPENAI_", "OPENROUTER_", "ANTHROPIC_", "OLLAMA_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own = {"PYTHONPATH": str(ROOT), "ORGA_HOME": str(home), "ORGA_TRUST": "1"}
    return Orga(folder, inherited | planted() | own | env)
