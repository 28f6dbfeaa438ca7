"""The line in which the person at a terminal answers what a run asks."""

import signal
import sys
from collections.abc import Callable

from rich.console import Console

from orga.client.cli.terminal_text import on_one_line
from orga.workflows.types.questions import ShownQuestion

REDRAWN_S = 0.25
MENU_LINES = 6


class AnswerLine:
    """A line to type in, at the foot of a terminal; what is printed meanwhile stands above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_open = False

    async def typed(self, wait: ShownQuestion, standing: Callable[[], str]) -> str:
        """Return what the person types; "" where that is nothing, or the line was left with Ctrl-D.

        Ctrl-C is what it is anywhere else in the command.

        Args:
            wait: The question.
            standing: What is shown below the line, with its colours.
        """
        from prompt_toolkit import PromptSession  # a tenth of a second that most commands do without
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.formatted_text import ANSI
        from prompt_toolkit.output import create_output
        from prompt_toolkit.styles import Style

        options: list[str] = list(wait.data.get("options", ()))
        session = PromptSession[str](output=create_output(sys.stderr))
        self._is_open = True
        try:
            return await session.prompt_async(
                label(wait),
                completer=WordCompleter(options, sentence=True) if options else None,
                bottom_toolbar=lambda: ANSI(standing()),
                style=Style.from_dict({"bottom-toolbar": "noreverse"}),
                refresh_interval=REDRAWN_S,
                reserve_space_for_menu=min(len(options), MENU_LINES),
                handle_sigint=False,
            )
        except EOFError:
            return ""
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
            return ""
        finally:
            self._is_open = False

    def print(self, *shown: object) -> None:
        """Print above the line, or where the cursor stands while there is none."""
        if not self._is_open:
            self._console.print(*shown)
            return
        from prompt_toolkit.application import run_in_terminal

        run_in_terminal(lambda: self._console.print(*shown))


def label(wait: ShownQuestion) -> str:
    """Return what stands ahead of the answer: what counts as one, and that it can wait."""
    options = ", ".join(on_one_line(option, 60) for option in wait.data.get("options", ()))
    default = wait.data.get("default")
    terms = [options, f"{on_one_line(str(default), 60)} in the end" if default else "", "Enter: later"]
    return f"answer ({'; '.join(filter(None, terms))}) › "
