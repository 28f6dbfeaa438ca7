"""What a run has recalled, as the reader sees it: what is said there, without who said it to whom and when."""

import re

from orga.workflows.types.text import undelimited

NAME = "recalled knowledge"
"""What its quotes are attributed to; the passages of files that it quotes name these themselves."""

_NO_STATEMENT = re.compile(
    r"\[KNOWLEDGE_CONTEXT\]|\[[0-9a-f]{12} (?:begins|ends)|- \w+, relevance=|Task: |offline:extractive: |---$"
)
_QUOTED = re.compile(r"(?:> ?)+")


def recalled_text(block: str) -> str:
    """Return the statements of a block, each on its line; lines that state nothing are empty."""
    lines = undelimited(block).split("\n")
    return "\n".join("" if _NO_STATEMENT.match(line) else _QUOTED.sub("", line, count=1) for line in lines)
