"""`make pictures`: the terminals in the documents, recorded at a real one from commands as people type them.

The report of a run is a page: a browser shows it, where Chromium is installed.
"""

import fcntl
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.model.chat_server import Calls, CallsAtOnce, Says, chat_server  # noqa: E402

HERE = Path(__file__).parent
ORGA = str(ROOT / ".venv" / "bin" / "orga")
COLUMNS, LINES = 80, 60
PAGE = "880,1180"
"""Pixels."""
SCORES = {"relevance": 5, "completeness": 4, "usability": 4, "goal_progress": 4}
COLOURS = {"brown": "yellow"}
SHELF = '''\
import asyncio

from orga import tool


@tool(effect="read_only")
async def ask_branch(branch: str, seconds: float) -> str:
    """Ask a branch library for a book."""
    await asyncio.sleep(seconds)
    return f"{branch}: not in"
'''
CONFIG = """\
[models]
default = "offline:extractive"
base_urls = {{ openai-compatible = "{run_url}", ollama = "{goal_url}" }}

[agents.branches]
model = "openai-compatible:scripted"
tools = ["ask_branch"]

[agents.librarian]
model = "ollama:scripted"
tools = ["ask_branch"]

[tools]
python = ["branches:ask_branch"]
"""


class Recorder:
    """Runs commands at a terminal, and keeps the frame that is wanted."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        self._env = kept | {"HOME": str(home), "ORGA_HOME": str(home / "orga"), "TERM": "xterm-256color", "TZ": "UTC"}

    def quietly(self, *arguments: str) -> bytes:
        """Run a command that nobody looks at, and return its result."""
        done = subprocess.run([ORGA, *arguments], cwd=self._folder, env=self._env, check=False, capture_output=True)
        return done.stdout

    def record(self, picture: str, *arguments: str, wanted: Callable[[str], bool] = lambda shown: True) -> None:
        """Write the last frame that is wanted as a picture."""
        screen = pyte.Screen(COLUMNS, LINES)
        stream, frame = pyte.ByteStream(screen), []
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        command = [ORGA, *arguments]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=self._folder, env=self._env)
        os.close(theirs)
        while drawn := _read(ours):
            stream.feed(drawn)
            if wanted("\n".join(screen.display)):
                frame = [_line(screen, row) for row in range(LINES)]
        process.wait()
        os.close(ours)
        if not frame:
            sys.stdout.write(f"{picture}.svg: what is wanted was never shown, so it stays as it is\n")
            return
        typed = " ".join(f'"{word}"' if " " in word else word for word in ("orga", *arguments))
        _draw(picture, [Text(f"$ {typed}", style="bold"), *frame])


def _browse(picture: str, page: Path) -> None:
    """Write what a browser shows of a page."""
    if (browser := shutil.which("chromium")) is None:
        sys.stdout.write(f"{picture}.png: there is no chromium, so it stays as it is\n")
        return
    headless = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={PAGE}"]
    target = HERE / f"{picture}.png"
    subprocess.run([browser, *headless, f"--screenshot={target}", page.as_uri()], check=True, capture_output=True)
    sys.stdout.write(f"{picture}.png: {target.stat().st_size} bytes\n")


def _read(terminal: int) -> bytes:
    try:
        drawn = os.read(terminal, 65_536)
    except OSError:  # its last process has closed it
        return b""
    if b"\x1b[6n" in drawn:
        os.write(terminal, b"\x1b[1;1R")
    return drawn


def _line(screen: pyte.Screen, row: int) -> Text:
    cells = [screen.buffer[row][column] for column in range(COLUMNS)]
    line = Text()
    for style, run in groupby(cells, _style):
        line.append("".join(cell.data for cell in run), style)
    line.rstrip()
    return line


def _style(cell: pyte.screens.Char) -> Style:
    colour = None if cell.fg == "default" else COLOURS.get(cell.fg, cell.fg)
    return Style(color=colour, bold=cell.bold, italic=cell.italics)


def _draw(picture: str, lines: list[Text]) -> None:
    while not lines[-1].plain:
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(line, soft_wrap=True)
    console.save_svg(str(HERE / f"{picture}.svg"), title="orga", unique_id=picture)
    sys.stdout.write(f"{picture}.svg: {len(lines)} lines\n")


def _asked(branch: str, seconds: float) -> Calls:
    return Calls("ask_branch", {"branch": branch, "seconds": seconds})


def _goal_replies() -> list[Says]:
    """Return the replies of a goal's model, by the number of replies before: each round of steps counts as one."""
    first = (_step("s1", "Harbour Street", 1), _step("s2", "Old Town", 2))
    last = _step("s3", "University", 6, needs=["s1", "s2"])
    evaluated = [_json_reply(steps=[{"id": step["id"], **SCORES} for step in steps]) for steps in (first, (last,))]
    plan, answer = _json_reply(steps=[*first, last]), Says(["No branch ", "has it."])
    return [plan, plan, evaluated[0], plan, evaluated[1], answer]


def _step(step_id: str, branch: str, seconds: float, needs: Sequence[str] = ()) -> dict[str, Any]:
    arguments = {"branch": branch, "seconds": seconds}
    return {"id": step_id, "goal": f"ask {branch}", "skill": "ask_branch", "arguments": arguments, "depends_on": needs}


def _is_in_second_round(shown: str) -> bool:
    is_running = "\n  ask_branch University" in shown and "✓ ask_branch University" not in shown
    return is_running and "/15 rounds" in shown


def _json_reply(**answer: Any) -> Says:
    return Says([json.dumps(answer)])


def main() -> None:
    """Record all."""
    three = CallsAtOnce([_asked("Harbour Street", 2), _asked("Old Town", 5), _asked("University", 7)])
    with (
        tempfile.TemporaryDirectory() as home,
        chat_server(three, Says(["No branch ", "has it."])) as chat,
        chat_server(*_goal_replies()) as goal_chat,
    ):
        folder = Path(home) / "library"
        shutil.copytree(ROOT / "examples" / "library", folder)
        (folder / "branches.py").write_text(SHELF)
        (folder / "orga.toml").write_text(CONFIG.format(run_url=chat.url, goal_url=goal_chat.url))
        recorder = Recorder(folder, Path(home))
        recorder.quietly("trust")
        try:
            recorder.quietly("run", "When is the library open?")  # the server and the worker are there from now on
            recorder.record("run", "run", "How long may a book be kept?")
            page = Path(home) / "report.html"
            page.write_bytes(recorder.quietly("journal", "--last", "--html"))
            _browse("report", page)
            branches = ("run", "--agent", "branches", "Which branch has the book?")
            recorder.record(
                "live", *branches, wanted=lambda shown: "• ask_branch Harbour" in shown and "✓" not in shown
            )
            goal = ("goal", "--agent", "librarian", "Which branch has the book?")
            recorder.record("plan", *goal, wanted=_is_in_second_round)
            recorder.record("list", "list")
        finally:
            recorder.quietly("server", "--stop")


if __name__ == "__main__":
    main()
