"""A convention as a file has it, and the size of one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_CHARS = 1_600
"""Of a rule: what is longer becomes several."""


@dataclass(frozen=True)
class Rule:
    """One convention."""

    text: str
    language: str = ""
    """In lower case; empty where it holds for all."""


def rules(title: str, lines: Iterable[str], language: str = "") -> Iterator[Rule]:
    """Yield the lines as rules that each begin with the title; what has no line is no rule."""
    head = title[: MAX_CHARS // 4].rstrip()
    for part in _parts(lines, MAX_CHARS - len(head)):
        yield Rule(f"{head}\n{part}" if head else part, language)


def _parts(lines: Iterable[str], chars: int) -> Iterator[str]:
    part: list[str] = []
    size = 0
    for line in _short_lines(lines, chars):
        if size + len(line) >= chars:
            yield from _filled(part)
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    yield from _filled(part)


def _short_lines(lines: Iterable[str], chars: int) -> Iterator[str]:
    for line in lines:
        yield from (line[start : start + chars - 1] for start in range(0, max(len(line), 1), chars - 1))


def _filled(part: list[str]) -> Iterator[str]:
    if text := "\n".join(part).strip("\n").rstrip():
        yield text
