"""Conventions that people write as a text: a rule for each section, with the headings that it stands under."""

from collections.abc import Iterator

from orga.activities.adapters.knowledge.conventions.rule import Rule
from orga.activities.knowledge.chunks import chunks


def prose_rules(text: str) -> Iterator[Rule]:
    """Yield a rule for each section of Markdown, `Contributing > Tests` above it; other text is one section.

    Comments are left out: who reads the page does not see them.
    """
    for part in chunks(_without_comments(text), overlap=0):
        yield Rule(part.text)


def _without_comments(text: str) -> str:
    kept: list[str] = []
    start = 0
    while (opened := text.find("<!--", start)) >= 0 and (closed := text.find("-->", opened)) >= 0:
        kept.append(text[start:opened])
        start = closed + len("-->")
    return "".join([*kept, text[start:]])
