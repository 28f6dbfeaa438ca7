"""Units: the sentences, list items and table rows of a passage, which answer a question one by one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from orga.activities.adapters.models.reader.passages import ITEM, Passage

_SENTENCE = re.compile(r"(?<=[\w`)\]\"”'’%][.!?])(?<!\b\d\.)(?<!\b\d\d\.)(?<!\bDr\.)(?<!\bNr\.)\s+|(?<=[。！？])")
_ROW = re.compile(r"^\s*\|")
_RULE = re.compile(r"^\s*\|[\s:|-]+\|?\s*$")
_JOINED = 3
"""Sentences in a row that may answer together."""


@dataclass(frozen=True)
class Unit:
    """Lines `first` to `last` of the file; `texts` are its sentences, of which the lines may hold more."""

    first: int
    last: int
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        """What it says."""
        return " ".join(self.texts)


def units_of(passage: Passage) -> Iterator[Unit]:
    """Yield what may answer: code as a whole; each row and item; each sentence, and neighbours together."""
    if passage.is_code or passage.is_fenced or passage.is_heading:
        yield Unit(passage.first, passage.last, (passage.text,))
        return
    for first, block in _blocks(passage):
        if _RULE.match(block[0]) or (_ROW.match(block[0]) and block[0] == passage.header):
            continue
        if ITEM.match(block[0]):
            yield Unit(first, first + len(block) - 1, ("\n".join(block),))
        else:
            yield from _sentences(first, block)


def _blocks(passage: Passage) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows and items with their numbers, and the prose between them."""
    block: list[str] = []
    for number, line in enumerate(passage.lines, passage.first):
        if block and (ITEM.match(line) or _ROW.match(block[0])):
            yield number - len(block), block
            block = []
        block.append(line)
    if block:
        yield passage.last + 1 - len(block), block


def _sentences(first: int, lines: list[str]) -> Iterator[Unit]:
    text = "\n".join(lines)
    ends = [*(match.start() for match in _SENTENCE.finditer(text)), len(text)]
    starts = [0, *(match.end() for match in _SENTENCE.finditer(text))]
    breaks = list(accumulate(len(line) + 1 for line in lines))

    def line_of(place: int) -> int:
        return first + next((i for i, end in enumerate(breaks) if place < end), len(lines) - 1)

    spans = [(a, b) for a, b in zip(starts, ends, strict=True) if text[a:b].strip()]
    for size in range(1, _JOINED + 1):
        for i in range(len(spans) - size + 1):
            chosen = spans[i : i + size]
            texts = tuple(text[a:b] for a, b in chosen)
            yield Unit(line_of(chosen[0][0]), line_of(chosen[-1][1] - 1), texts)
