"""An answer on stdout: as it is, or rendered where a person reads it in a terminal."""

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from orga.client.cli.output import document
from orga.client.cli.terminal_text import harmless

if TYPE_CHECKING:
    from markdown_it.token import Token


def answer(text: str) -> None:
    """Write the answer; a terminal shows its Markdown, a pipe or a file gets it letter by letter."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in {"", "dumb"}:
        document(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    rendered = Markdown(harmless(text), hyperlinks=False)  # a link shows where it leads
    _disarm(rendered.parsed)
    Console(markup=False, highlight=False, emoji=False).print(rendered)


def _disarm(tokens: "Iterable[Token]") -> None:
    """Remove what a terminal would act on from what Markdown made of the text: `&#27;` is an escape by now."""
    for token in tokens:
        token.content = harmless(token.content)
        token.info = harmless(token.info)
        token.attrs = {
            name: harmless(value) if isinstance(value, str) else value for name, value in token.attrs.items()
        }
        _disarm(token.children or ())
