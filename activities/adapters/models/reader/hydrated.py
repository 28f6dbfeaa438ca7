"""The `[PRE_HYDRATED_CONTEXT]` block as the reader sees it: one text for each source."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orga.workflows.types.hydration import CONTEXT_BLOCK

_MARK = re.compile(r"lines that begin with \[([0-9a-f]{12}) ")
_HEAD = re.compile(r"\AContent of \S+\n")
"""What `fetch_url` puts above a page."""


@dataclass(frozen=True)
class Source:
    """What was fetched for one reference."""

    value: str
    tool: str
    text: str


def sources_of(text: str) -> Iterator[Source]:
    """Yield the sources of a block; none for a text that is no block."""
    mark = _MARK.search(text) if text.startswith(CONTEXT_BLOCK) else None
    if mark is None:
        return
    begins = rf"^\[{mark[1]} begins: (?P<value>[^\n]+) \(\w+\), from (?P<tool>[\w-]+)\]\n"
    for found in re.finditer(rf"{begins}(?P<text>.*?)\n\[{mark[1]} ends\]$", text, re.M | re.S):
        yield Source(found["value"], found["tool"], _HEAD.sub("", found["text"]).rstrip("\n"))
