"""The screens that show a followed run: lines for a pipe or a log, `--quiet`, or a live view on a terminal."""

import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.style import Style
from rich.text import Text

from orga.activities.text.characters import harmless_text
from orga.client.cli.shown.decisions import commands_text, held_call_text, held_calls
from orga.client.cli.shown.progress import PendingActivity, PendingCalls, Progress
from orga.client.cli.shown.status_text import MAX_LIVE_STEPS, call_budgets, step_lines, trend_line, waiting_suffix
from orga.client.cli.shown.text import StyledLine, Tone, terminal_line, write_note, write_warning
from orga.client.server.endpoint import Report
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.text import escaped_line, full_field_text

if TYPE_CHECKING:
    from prompt_toolkit.input import Input

WAITING_FOR_WORKER = "waiting for a {} on task queue {!r}; start one with: {}"


class Screen(Protocol):
    """Shows lines that stay, and the run's current progress."""

    def show_line(self, line: StyledLine, at: datetime) -> None: ...

    def show_progress(self, progress: Progress) -> None: ...

    def note(self, text: str) -> None: ...

    async def read_answer(self, wait: ShownQuestion) -> str:
        """Return the answer that a person types to an open question; "" if nobody answers here."""
        ...

    def close(self) -> None:
        """Remove the current progress from the terminal."""
        ...


class PlainScreen:
    """Writes everything once, with the time."""

    def __init__(self) -> None:
        self._shown_remarks: set[str] = set()

    def show_line(self, line: StyledLine, at: datetime) -> None:
        write_note(f"{at.astimezone():%H:%M:%S} {line.text}")

    def show_progress(self, progress: Progress) -> None:
        """Write each remark once. A missing worker is reported again if one has polled in between."""
        current = remarks(progress)
        for remark in current:
            if remark not in self._shown_remarks:
                self.note(remark)
        self._shown_remarks |= set(current)
        if not progress.lacks_worker:
            self._shown_remarks.discard(_worker_remark(progress))

    def note(self, text: str) -> None:
        write_note(f"{datetime.now(UTC).astimezone():%H:%M:%S} {text}")

    async def read_answer(self, wait: ShownQuestion) -> str:
        """Return "", as nobody types into a pipe, and `--quiet` asks nothing."""
        return ""

    def close(self) -> None:
        """Do nothing: all that was written stays."""


def remarks(progress: Progress) -> list[str]:
    """Return what a person should know besides the journal's lines: missing worker, open questions, failed attempts."""
    retries = [
        f"{full_field_text(call.name)}: attempt {call.attempt}, after: {terminal_line(call.failure, 200) or 'silence'}"
        for call in progress.pending_calls.running
        if call.attempt > 1
    ]
    return blocking_remarks(progress) + retries


def blocking_remarks(progress: Progress) -> list[str]:
    """Return what keeps the run waiting: a missing worker, open questions."""
    texts = [_worker_remark(progress)] if progress.lacks_worker else []
    return texts + [_question_remark(run_id, wait) for run_id, wait in progress.all_waiting()]


def _worker_remark(progress: Progress) -> str:
    if progress.starts_worker:
        return f"waiting for the worker that is being started for task queue {progress.task_queue!r}"
    needed = progress.needed_worker
    return WAITING_FOR_WORKER.format(needed.name, progress.task_queue, needed.command)


def _question_remark(run_id: str, wait: ShownQuestion) -> str:
    asked = "; ".join(map(held_call_text, held_calls(wait))) or terminal_line(wait.question, 300)
    what = f"waits for {asked}" if wait.kind == "result" else f"waits for you: {asked}"
    return f"{what} → {commands_text(run_id, wait)}"


class QuietScreen(PlainScreen):
    """Writes only what keeps the run waiting, each remark once."""

    def show_line(self, line: StyledLine, at: datetime) -> None:
        """Do nothing: `orga journal` shows the line."""

    def show_progress(self, progress: Progress) -> None:
        for remark in blocking_remarks(progress):
            if remark not in self._shown_remarks:
                self._shown_remarks.add(remark)
                write_warning(remark)

    def note(self, text: str) -> None:
        """Do nothing: a note does not keep the run waiting."""


REDRAW_S = 0.25
"""Seconds between two drawings of an input line and of the block below it."""

_MENU_LINES = 6
"""Options that are shown at once."""


def raw_keyboard() -> "Input":
    """Return the keyboard for an input line. It stays in raw mode while output is printed above the line.

    In cooked mode, the terminal itself would take a key that is pressed during the output. It would lose Ctrl-D, and
    Ctrl-C would end the command, whatever the line does on that key.
    """
    from prompt_toolkit.application.current import get_app_session

    keyboard = get_app_session().input
    keyboard.cooked_mode = nullcontext
    return keyboard


class _AnswerLine:
    """An input line at the foot of a terminal. Output is printed above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_open = False

    async def read_answer(self, wait: ShownQuestion, render_block: Callable[[], str]) -> str:
        """Return the typed text; "" if there is none, or after Ctrl-D. `render_block` returns the text below the line.

        Ctrl-C has the same effect as in the rest of the command.
        """
        from prompt_toolkit import PromptSession  # the import takes a tenth of a second
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.formatted_text import ANSI
        from prompt_toolkit.output import create_output
        from prompt_toolkit.styles import Style

        options: list[str] = list(wait.data.get("options", ()))
        session = PromptSession[str](input=raw_keyboard(), output=create_output(sys.stderr))
        self._is_open = True
        try:
            return await session.prompt_async(
                answer_label(wait),
                completer=WordCompleter(options, sentence=True) if options else None,
                bottom_toolbar=lambda: ANSI(render_block()),
                style=Style.from_dict({"bottom-toolbar": "noreverse"}),
                refresh_interval=REDRAW_S,
                reserve_space_for_menu=min(len(options), _MENU_LINES),
                handle_sigint=False,
            )
        except EOFError:
            return ""
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
            return ""
        finally:
            self._is_open = False

    def print_above(self, *shown: object) -> None:
        if not self._is_open:
            self._console.print(*shown)
            return
        from prompt_toolkit.application import run_in_terminal

        run_in_terminal(lambda: self._console.print(*shown))


def answer_label(wait: ShownQuestion) -> str:
    """Return the text in front of the input line: options, default, and that Enter leaves the question for later."""
    options = ", ".join(terminal_line(option, 60) for option in wait.data.get("options", ()))
    default = wait.data.get("default")
    terms = [options, f"{terminal_line(str(default), 60)} if nobody answers" if default else "", "Enter: later"]
    return f"answer ({'; '.join(filter(None, terms))}) › "


_SPINNER_CELLS = 2


class _Meter(NamedTuple):
    spent: float
    limit: float | None
    unit: str
    units: str
    """The plural."""
    short_unit: str


class _MeterForm(NamedTuple):
    bar_cells: int
    is_short: bool = False
    has_limit: bool = True
    gap: int = 2


_METER_FORMS = (
    _MeterForm(12),
    _MeterForm(8),
    _MeterForm(4),
    _MeterForm(0),
    _MeterForm(0, is_short=True),
    _MeterForm(0, is_short=True, gap=1),
)
"""The widest first."""
_NARROWEST_FORM = _MeterForm(0, is_short=True, has_limit=False, gap=1)


class _Meters:
    """The last line of the live view, in the widest form that fits."""

    def __init__(self, progress: Progress, now: datetime) -> None:
        self._phase = "paused" if progress.paused else progress.phase
        self._meters = tuple(_meters(progress, now))
        self._cost_usd = progress.cost_usd

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - _SPINNER_CELLS
        lines = (self._line(form) for form in (*_METER_FORMS, _NARROWEST_FORM))
        line = next((line for line in lines if cell_len(line.plain) <= room), self._line(_NARROWEST_FORM))
        spinner = Spinner("dots")
        spinner.start_time = 0.0  # each drawing has a new spinner, and it would always show its first picture
        drawn = spinner.render(console.get_time())
        shown = Text.assemble(drawn if isinstance(drawn, Text) else "", " ", line)
        shown.truncate(options.max_width, overflow="ellipsis")
        yield shown

    def _line(self, form: _MeterForm) -> Text:
        parts = [Text(self._phase, style="bold"), *(_meter_text(meter, form) for meter in self._meters)]
        if self._cost_usd is not None:
            parts.append(Text(f"{self._cost_usd:.4f} USD"))
        return Text(" " * form.gap).join(parts)


def _meters(progress: Progress, now: datetime) -> Iterable[_Meter]:
    """Yield what was used of each limit. A goal counts rounds instead of iterations."""
    budgets, plan = progress.budgets, progress.plan
    limit = budgets.max_iterations if budgets else None
    if plan is None:
        yield _Meter(progress.iteration, limit, "iteration", "iterations", "iter")
    else:
        yield _Meter(plan.get("rounds", 0), limit, "round", "rounds", "rounds")
    yield _Meter(progress.tokens, budgets.max_total_tokens if budgets else None, "token", "tokens", "tok")
    yield _Meter(int(progress.clock_s(now)), budgets.timeout_s if budgets else None, "s", "s", "s")


def _meter_text(meter: _Meter, form: _MeterForm) -> Text:
    number_text = _short_number if form.is_short else "{:,.0f}".format
    limit = meter.limit if form.has_limit else None
    is_single = meter.spent == 1 and not limit
    unit = meter.unit if is_single else meter.units
    if form.is_short:
        unit = meter.short_unit
    if not limit:
        return Text(f"{number_text(meter.spent)} {unit}")
    text = _bar(min(meter.spent / limit, 1.0), form.bar_cells)
    return text.append(f"{number_text(meter.spent)}/{number_text(limit)} {unit}", style="none")


def _bar(share: float, cells: int) -> Text:
    if not cells:
        return Text()
    filled = round(share * cells)
    text = Text("█" * filled, style=Style(color="red" if share > 0.8 else "green"))
    return text.append("░" * (cells - filled), style="dim").append(" ", style="none")


def _short_number(number: float) -> str:
    """Return a number such as 950, 12.3k or 1.2M, in at most five characters."""
    for least, size, letter in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if number >= least:
            return f"{number / size:.1f}".removesuffix(".0") + letter
    return f"{number:.0f}"


_TEXT_LINES = 6
"""Lines that are shown of a text that a model is writing: the last ones."""
_CALL_CHARS = 200

STYLES: dict[Tone, str] = {
    "quiet": "dim",
    "plain": "",
    "call": "cyan",
    "good": "green",
    "bad": "red",
    "person": "bold",
}

_SHOWN_MODEL_CALLS = {"reason", "goal_summary"}
"""Model calls that write text for people. The other prompts of a goal ask for JSON."""


class LiveScreen:
    """Draws on stderr. Stdout is only for the result."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._line = _AnswerLine(self._console)
        self._progress = Progress()
        self._live = Live(console=self._console, transient=True, refresh_per_second=8, redirect_stdout=False)
        self._live.start()

    def show_line(self, line: StyledLine, at: datetime) -> None:
        self._line.print_above(Text(escaped_line(line.text), style=STYLES[line.tone]))

    def show_progress(self, progress: Progress) -> None:
        self._progress = progress
        if self._live.is_started:
            self._live.update(self._block())

    def note(self, text: str) -> None:
        self._line.print_above(Text(escaped_line(text), style="dim"))

    async def read_answer(self, wait: ShownQuestion) -> str:
        """Let the person type an answer. Meanwhile the block is drawn below the input line."""
        if not sys.stdin.isatty():
            return ""
        self._live.stop()
        try:
            return await self._line.read_answer(wait, self._rendered_block)
        finally:
            self._live.start()

    def close(self) -> None:
        self._live.stop()

    def _block(self) -> RenderableType:
        return live_block(self._progress, datetime.now(UTC))

    def _rendered_block(self) -> str:
        with self._console.capture() as captured:
            self._console.print(self._block())
        return captured.get().rstrip("\n")


def is_terminal() -> bool:
    """Return whether a block can be drawn on stderr."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def live_block(progress: Progress, now: datetime) -> RenderableType:
    """Return the block: streaming text or thinking, pending calls, plan and delegates, remarks, meters."""
    parts: list[RenderableType] = []
    pending = progress.pending_calls
    calls = [*pending.ended]
    for activity in pending.running:
        if activity.name not in _SHOWN_MODEL_CALLS:
            calls.append(activity)
        elif activity.text:
            parts.append(_text_tail(activity.text, "italic"))
        elif activity.thinking:
            parts.append(_text_tail(activity.thinking, "dim"))
    parts += [_CallLine(pending, call, now) for call in sorted(calls, key=PendingActivity.sort_key)]
    parts += [Text(escaped_line(line), style="dim") for line in _lasting_lines(progress)]
    parts += [Text(escaped_line(remark), style="yellow") for remark in remarks(progress)]
    return Group(*parts, _Meters(progress, now))


def _text_tail(text: str, style: str) -> Text:
    lines = [line for line in harmless_text(text).splitlines() if line.strip()]
    return Text("\n".join(f"│ {escaped_line(line)}" for line in lines[-_TEXT_LINES:]), style=style, overflow="fold")


class _CallLine:
    """A call on one line. On a narrow terminal, the text is cut and the time is kept."""

    def __init__(self, pending_calls: PendingCalls, activity: PendingActivity, now: datetime) -> None:
        self._text = escaped_line(terminal_line(pending_calls.activity_text(activity), _CALL_CHARS))
        self._time, self._style = _time_and_style(activity, now)
        self._mark = " " if activity.took_s is None else "•"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        call = Text(f"{self._mark} {self._text}", style=self._style)
        call.truncate(max(options.max_width - cell_len(self._time) - 1, 1), overflow="ellipsis")
        yield call.append(f" {self._time}")


def _time_and_style(activity: PendingActivity, now: datetime) -> tuple[str, str]:
    if activity.took_s is not None:
        return f"{activity.took_s:.1f} s", "dim"
    if activity.since is None:
        return "waits", "dim"
    return f"{max((now - activity.since).total_seconds(), 0.0):.1f} s", "cyan"


def _lasting_lines(progress: Progress) -> list[str]:
    """Return lines about what lasts longer than an iteration: plan, delegates, circuits, call budgets, dead letters."""
    lines = [f"  {line}" for line in step_lines(progress.plan, MAX_LIVE_STEPS)]
    if trend := trend_line(progress.plan):
        lines.append(f"  scores: {trend}")
    lines += [
        f"  ⇢ {full_field_text(child.agent)}: {terminal_line(child.task)}{waiting_suffix(child)}"
        for child in progress.children
    ]
    if progress.circuits:
        lines.append(f"  left alone (open circuit): {', '.join(map(full_field_text, progress.circuits))}")
    if progress.budgets and (calls := call_budgets(progress.budgets)):
        lines.append(f"  {calls}")
    if progress.dead_letters:
        lines.append(f"  dead letters: {progress.dead_letters}, see: orga status {quote(progress.run_id)}")
    return lines


_STEP_CHARS = 200


@contextmanager
def progress_line() -> Generator[Report]:
    """Yield a function that reports a step, from any thread. The line is removed when the block ends."""
    if not is_terminal():
        yield lambda _: None
        return
    spinner = Spinner("dots", style="dim")
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    with Live(spinner, console=console, transient=True, refresh_per_second=8, redirect_stdout=False):
        yield lambda step: spinner.update(text=Text(terminal_line(step, _STEP_CHARS), style="dim"))
