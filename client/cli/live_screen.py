"""The live view of a terminal: lines that stay, and under them a block that is drawn anew."""

import os
import sys
from datetime import UTC, datetime
from shlex import quote

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from orga.client.cli.answer_line import AnswerLine
from orga.client.cli.flights import Flights, InFlight
from orga.client.cli.line import Line, Tone
from orga.client.cli.meters import Meters
from orga.client.cli.plan_lines import SHOWN, step_lines, trend_line
from orga.client.cli.progress import Progress
from orga.client.cli.screen import remarks
from orga.client.cli.status_lines import call_budgets, held
from orga.client.cli.terminal_text import harmless, on_one_line
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.text import as_line, in_full

TEXT_LINES = 6
"""Of what a model is writing."""
CALL_CHARS = 200

STYLES: dict[Tone, str] = {
    "quiet": "dim",
    "plain": "",
    "call": "cyan",
    "good": "green",
    "bad": "red",
    "person": "bold",
}
_WRITING = {"reason", "goal_summary"}
"""Model calls whose words are for people; those of a goal's other turns are JSON."""


class LiveScreen:
    """Draws on stderr, so that stdout stays free for the result."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._line = AnswerLine(self._console)
        self._standing = Progress()
        self._live = Live(console=self._console, transient=True, refresh_per_second=8, redirect_stdout=False)
        self._live.start()

    def told(self, line: Line, at: datetime) -> None:
        """Print the line above the block."""
        self._line.print(Text(as_line(line.text), style=STYLES[line.tone]))

    def frame(self, progress: Progress) -> None:
        """Draw the block."""
        self._standing = progress
        if self._live.is_started:
            self._live.update(self._block())

    def note(self, text: str) -> None:
        """Print the remark above the block."""
        self._line.print(Text(as_line(text), style="dim"))

    async def typed(self, wait: ShownQuestion) -> str:
        """Let the person type under the question; the block stands below that meanwhile."""
        if not sys.stdin.isatty():
            return ""
        self._live.stop()
        try:
            return await self._line.typed(wait, self._drawn)
        finally:
            self._live.start()

    def close(self) -> None:
        """Remove the block."""
        self._live.stop()

    def _block(self) -> RenderableType:
        return block(self._standing, datetime.now(UTC))

    def _drawn(self) -> str:
        with self._console.capture() as captured:
            self._console.print(self._block())
        return captured.get().rstrip("\n")


def is_terminal() -> bool:
    """Return whether a block can be drawn on stderr."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def block(progress: Progress, now: datetime) -> RenderableType:
    """Return the block: streaming text, what is in flight, what stands, remarks, meters."""
    parts: list[RenderableType] = []
    for activity in progress.in_flight:
        if activity.name in _WRITING and activity.text:
            parts.append(_tail(activity.text))
    parts += [_Call(progress.flights, each, now) for each in _calls(progress)]
    parts += [Text(as_line(line), style="dim") for line in _standing(progress)]
    parts += [Text(as_line(remark), style="yellow") for remark in remarks(progress)]
    return Group(*parts, Meters(progress, now))


def _tail(text: str) -> Text:
    lines = [line for line in harmless(text).splitlines() if line.strip()]
    return Text("\n".join(f"│ {as_line(line)}" for line in lines[-TEXT_LINES:]), style="italic", overflow="fold")


def _calls(progress: Progress) -> list[InFlight]:
    """Return what is under way or over, in the order of the calls."""
    under_way = [each for each in progress.in_flight if each.name not in _WRITING]
    return sorted([*under_way, *progress.flights.over], key=InFlight.place)


class _Call:
    """A call on one line: what it is gives way, where the line is too narrow; its time never does."""

    def __init__(self, flights: Flights, activity: InFlight, now: datetime) -> None:
        self._text = as_line(on_one_line(flights.in_words(activity), CALL_CHARS))
        self._time, self._style = _time_of(activity, now)
        self._mark = " " if activity.took_s is None else "•"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the line."""
        call = Text(f"{self._mark} {self._text}", style=self._style)
        call.truncate(max(options.max_width - cell_len(self._time) - 1, 1), overflow="ellipsis")
        yield call.append(f" {self._time}")


def _time_of(activity: InFlight, now: datetime) -> tuple[str, str]:
    """Return its own time, and the style; of one that is over what it took."""
    if activity.took_s is not None:
        return f"{activity.took_s:.1f} s", "dim"
    if activity.since is None:
        return "waits", "dim"
    return f"{max((now - activity.since).total_seconds(), 0.0):.1f} s", "cyan"


def _standing(progress: Progress) -> list[str]:
    """Return what lasts longer than an iteration."""
    lines = [f"  {line}" for line in step_lines(progress.plan, SHOWN)]
    if trend := trend_line(progress.plan):
        lines.append(f"  scores: {trend}")
    lines += [f"  ⇢ {in_full(child.agent)}: {on_one_line(child.task)}{held(child)}" for child in progress.children]
    if progress.circuits:
        lines.append(f"  left alone (open circuit): {', '.join(map(in_full, progress.circuits))}")
    if progress.budgets and (calls := call_budgets(progress.budgets)):
        lines.append(f"  {calls}")
    if progress.dead_letters:
        lines.append(f"  dead letters: {progress.dead_letters}, see: orga status {quote(progress.run_id)}")
    return lines
