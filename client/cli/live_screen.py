"""The live view of a terminal: lines that stay, and under them a block that is drawn anew."""

import os
import sys
from datetime import UTC, datetime
from shlex import quote

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.style import Style
from rich.table import Table
from rich.text import Text

from orga.client.cli.answer_line import AnswerLine
from orga.client.cli.line import Line, Tone
from orga.client.cli.plan_lines import SHOWN, step_lines, trend_line
from orga.client.cli.progress import InFlight, Progress
from orga.client.cli.screen import remarks
from orga.client.cli.status_lines import call_budgets, held
from orga.client.cli.terminal_text import harmless, on_one_line
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.text import as_line, in_full

TEXT_LINES = 6
"""Of what a model is writing."""
BAR_CELLS = 12

_STYLES: dict[Tone, str] = {
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
        self._line.print(Text(as_line(line.text), style=_STYLES[line.tone]))

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
    parts += [_flight(activity, now) for activity in progress.in_flight if activity.name not in _WRITING]
    parts += [Text(as_line(line), style="dim") for line in _standing(progress)]
    parts += [Text(as_line(remark), style="yellow") for remark in remarks(progress)]
    return Group(*parts, _meters(progress, now))


def _tail(text: str) -> Text:
    lines = [line for line in harmless(text).splitlines() if line.strip()]
    return Text("\n".join(f"│ {as_line(line)}" for line in lines[-TEXT_LINES:]), style="italic", overflow="fold")


def _flight(activity: InFlight, now: datetime) -> Text:
    if activity.since is None:
        return Text(f"  {in_full(activity.name)} waits", style="dim")
    return Text(f"  {in_full(activity.name)} {max((now - activity.since).total_seconds(), 0.0):.1f} s", style="cyan")


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


def _meters(progress: Progress, now: datetime) -> Table:
    budgets = progress.budgets
    phase = "paused" if progress.paused else progress.phase
    cells: list[RenderableType] = [
        Spinner("dots", text=Text(phase, style="bold")),
        _iterations(progress),
        _meter("tokens", progress.tokens, budgets.max_total_tokens if budgets else None),
        _meter("s", int(progress.clock_s(now)), budgets.timeout_s if budgets else None),
    ]
    if progress.cost_usd is not None:
        cells.append(Text(f"{progress.cost_usd:.4f} USD"))
    table = Table.grid(padding=(0, 2))
    table.add_row(*cells)
    return table


def _iterations(progress: Progress) -> Text:
    """Return how many are used up; of a goal its limit is one of rounds, and its iterations are turns."""
    budgets, plan = progress.budgets, progress.plan
    limit = budgets.max_iterations if budgets else None
    if plan is None:
        return _meter("iterations", progress.iteration, limit)
    return _meter("rounds", plan.get("rounds", 0), limit)


def _meter(unit: str, spent: float, limit: float | None) -> Text:
    if not limit:
        return Text(f"{spent:,} {unit}")
    share = min(spent / limit, 1.0)
    filled = round(share * BAR_CELLS)
    text = Text("█" * filled, style=Style(color="red" if share > 0.8 else "green"))
    text.append("░" * (BAR_CELLS - filled), style="dim")
    return text.append(f" {spent:,}/{limit:,.0f} {unit}", style="none")
