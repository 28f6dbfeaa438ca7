"""Conventions of `.editorconfig`: a rule for each of its patterns of file names."""

import re
from collections.abc import Iterator

from orga.activities.adapters.knowledge.conventions.rule import Rule, rules
from orga.activities.knowledge.languages import language_of_suffixes

_SUFFIXES = re.compile(r"\*\.(?:(\w+)|\{(\w+(?:, ?\w+)*)\})")
_LEFT_OUT = ("root",)


def editorconfig_rules(text: str) -> Iterator[Rule]:
    """Yield a rule for each section; one whose pattern names files of one language is a rule of that language."""
    pattern, lines = "", list[str]()
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            yield from _of_section(pattern, lines)
            pattern, lines = line[1:-1].strip(), []
        elif line and line[0] not in "#;" and line.partition("=")[0].strip().lower() not in _LEFT_OUT:
            lines.append(line)
    yield from _of_section(pattern, lines)


def _of_section(pattern: str, lines: list[str]) -> Iterator[Rule]:
    if pattern:
        yield from rules(f"files that match {pattern}, in .editorconfig", lines, _language(pattern))


def _language(pattern: str) -> str:
    found = _SUFFIXES.fullmatch(pattern)
    return language_of_suffixes((found[1] or found[2]).replace(" ", "").split(",")) if found else ""
