"""What a run has recalled, as the reader sees it: what is said there, without who said it to whom and when."""

import re

from orga.activities.knowledge.shown import INDENT
from orga.workflows.types.text import undelimited

NAME = "recalled knowledge"
"""What its quotes are attributed to; the passages of files that it quotes name these themselves."""

_NO_STATEMENT = re.compile(
    r"\[KNOWLEDGE_CONTEXT\]|\[[0-9a-f]{12} (?:begins|ends)|- \w+, relevance=|Task: |offline:extractive: |---$"
)
_ITEM = re.compile(r"- \w+, relevance=")
_OF_A_READER = re.compile(r", model=offline:")
_QUOTED = re.compile(r"(?:> ?)+")


def recalled_text(block: str) -> str:
    """Return the statements of a block, each on its line; lines that state nothing are empty.

    Of what a reader has said only its quotes state something: what it searched and did not find answers nobody.
    """
    lines, is_readers = list[str](), False
    for line in undelimited(block).split("\n"):
        if _ITEM.match(line):
            is_readers = _OF_A_READER.search(line) is not None
        said = line.removeprefix(INDENT)
        is_quote = said.startswith((">", "— "))
        is_statement = not _NO_STATEMENT.match(said) and (is_quote or not is_readers)
        lines.append(_QUOTED.sub("", said, count=1) if is_statement else "")
    return "\n".join(lines)
