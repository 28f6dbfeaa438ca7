"""How far long work is: one line on a terminal, drawn anew while it lasts; nothing where nobody looks."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from orga.client.cli.live_screen import is_terminal
from orga.client.cli.terminal_text import on_one_line
from orga.client.server.endpoint import Report

STEP_CHARS = 200


@contextmanager
def progress_line() -> Generator[Report]:
    """Yield what takes the steps, from any thread; the line is gone when the block ends."""
    if not is_terminal():
        yield lambda _: None
        return
    spinner = Spinner("dots", style="dim")
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    with Live(spinner, console=console, transient=True, refresh_per_second=8, redirect_stdout=False):
        yield lambda step: spinner.update(text=Text(on_one_line(step, STEP_CHARS), style="dim"))
