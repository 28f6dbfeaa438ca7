"""How far a run is, on one line whatever the width: bars give way first, then digits, then words."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.spinner import Spinner
from rich.style import Style
from rich.text import Text

from orga.client.cli.progress import Progress

SPINNER_CELLS = 2


class Meter(NamedTuple):
    """A count and its limit."""

    spent: float
    limit: float | None
    one: str
    """The unit of one."""
    many: str
    short: str


class Form(NamedTuple):
    """How much room a meter takes."""

    bar_cells: int
    is_short: bool = False
    has_limit: bool = True
    gap: int = 2


FORMS = (Form(12), Form(8), Form(4), Form(0), Form(0, is_short=True), Form(0, is_short=True, gap=1))
NARROWEST = Form(0, is_short=True, has_limit=False, gap=1)
"""Where even that is too wide, the line is cut."""


class Meters:
    """The last line of the live view, as wide as it may be."""

    def __init__(self, progress: Progress, now: datetime) -> None:
        self._phase = "paused" if progress.paused else progress.phase
        self._meters = tuple(_meters(progress, now))
        self._cost_usd = progress.cost_usd

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the line in the roomiest form that fits."""
        room = options.max_width - SPINNER_CELLS
        lines = (self._line(form) for form in (*FORMS, NARROWEST))
        line = next((each for each in lines if cell_len(each.plain) <= room), self._line(NARROWEST))
        spinner = Spinner("dots")
        spinner.start_time = 0.0
        drawn = spinner.render(console.get_time())
        shown = Text.assemble(drawn if isinstance(drawn, Text) else "", " ", line)
        shown.truncate(options.max_width, overflow="ellipsis")
        yield shown

    def _line(self, form: Form) -> Text:
        parts = [Text(self._phase, style="bold"), *(_drawn(meter, form) for meter in self._meters)]
        if self._cost_usd is not None:
            parts.append(Text(f"{self._cost_usd:.4f} USD"))
        return Text(" " * form.gap).join(parts)


def _meters(progress: Progress, now: datetime) -> Iterable[Meter]:
    """Yield how much is used up; of a goal the limit is one of rounds, and its iterations are turns."""
    budgets, plan = progress.budgets, progress.plan
    limit = budgets.max_iterations if budgets else None
    if plan is None:
        yield Meter(progress.iteration, limit, "iteration", "iterations", "iter")
    else:
        yield Meter(plan.get("rounds", 0), limit, "round", "rounds", "rounds")
    yield Meter(progress.tokens, budgets.max_total_tokens if budgets else None, "token", "tokens", "tok")
    yield Meter(int(progress.clock_s(now)), budgets.timeout_s if budgets else None, "s", "s", "s")


def _drawn(meter: Meter, form: Form) -> Text:
    written = _short if form.is_short else _whole
    limit = meter.limit if form.has_limit else None
    many = meter.one if meter.spent == 1 and not limit else meter.many
    unit = meter.short if form.is_short else many
    if not limit:
        return Text(f"{written(meter.spent)} {unit}")
    text = _bar(min(meter.spent / limit, 1.0), form.bar_cells)
    return text.append(f"{written(meter.spent)}/{written(limit)} {unit}", style="none")


def _bar(share: float, cells: int) -> Text:
    if not cells:
        return Text()
    filled = round(share * cells)
    text = Text("█" * filled, style=Style(color="red" if share > 0.8 else "green"))
    return text.append("░" * (cells - filled), style="dim").append(" ", style="none")


def _whole(number: float) -> str:
    return f"{number:,.0f}"


def _short(number: float) -> str:
    """Return it in at most five characters: 950, 12.3k, 1.2M."""
    for size, letter in ((1e6, "M"), (1e4, "k")):
        if number >= size:
            scaled = number / (1e3 if letter == "k" else 1e6)
            return f"{scaled:.1f}".removesuffix(".0") + letter
    return f"{number:.0f}"
