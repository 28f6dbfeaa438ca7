"""Conventions that people write as a text: a rule for each section, with the headings that it stands under."""

import re
from collections.abc import Iterator

from orga.activities.adapters.knowledge.conventions.rule import Rule, rules

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def prose_rules(text: str) -> Iterator[Rule]:
    """Yield a rule for each section of Markdown, `Contributing > Tests` above it; other text is one section.

    Comments are left out: who reads the page does not see them. A `#` in a block of code is no heading.
    """
    above: list[str] = []
    section: list[str] = []
    fence = ""
    for line in _without_comments(text).splitlines():
        fence = _fence_after(line, fence)
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            section.append(line)
            continue
        yield from rules(_title(above), section)
        depth = len(heading[1])
        above = [*(above + [""] * depth)[: depth - 1], heading[2].rstrip("# \t")]
        section = []
    yield from rules(_title(above), section)


def _title(above: list[str]) -> str:
    return " > ".join(filter(None, above))


def _fence_after(line: str, fence: str) -> str:
    """Return the mark of the block of code that the next line stands in; empty for none."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found[1]
    closes = found[1].startswith(fence) and line.strip() == found[1]
    return "" if closes else fence


def _without_comments(text: str) -> str:
    kept: list[str] = []
    start = 0
    while (opened := text.find("<!--", start)) >= 0 and (closed := text.find("-->", opened)) >= 0:
        kept.append(text[start:opened])
        start = closed + len("-->")
    return "".join([*kept, text[start:]])
