"""Quotes: the part of a passage that answers, short enough to read, with its lines."""

import re
from dataclasses import dataclass, replace

from orga.activities.adapters.models.reader.finding import Finding
from orga.activities.adapters.models.reader.lexicon import Lexicon
from orga.activities.adapters.models.reader.passages import Passage
from orga.activities.adapters.models.reader.words import stems

LONGEST = 700
"""Characters of a quote."""
_SENTENCE = re.compile(r"(?<=[.!?;:|。！？])\s+|(?<=[。！？])")


@dataclass(frozen=True)
class Quote:
    """Text as found, and where."""

    path: str
    first: int
    last: int
    text: str
    heading: str = ""

    @property
    def source(self) -> str:
        """`path:12-15`, or `path:12`."""
        return f"{self.path}:{self.first}" + (f"-{self.last}" if self.last > self.first else "")


def quote_of(passage: Passage, lexicon: Lexicon) -> Quote:
    """Return the best lines of a passage, or the best sentences when one line is too long to quote."""
    heading = passage.headings[-1] if passage.headings else ""
    first, last = _best_run([_relevance(line, lexicon) for line in passage.lines], [len(x) for x in passage.lines])
    text = "\n".join(passage.lines[first : last + 1])
    if len(text) > LONGEST:
        text = _best_sentences(text, lexicon)
    return Quote(passage.path, passage.first + first, passage.first + last, text, heading)


def quote_of_finding(passage: Passage, finding: Finding, lexicon: Lexicon) -> Quote:
    """Return the lines that answer; of code, and where they are too long to quote, the best of them."""
    unit = finding.unit
    lines = passage.lines[unit.first - passage.first : unit.last - passage.first + 1]
    if passage.is_code or passage.is_fenced or sum(map(len, lines)) > LONGEST:
        return quote_of(replace(passage, first=unit.first, lines=lines), lexicon)
    under = passage.headings[-1] if passage.headings else passage.title if unit.first > 1 else ""
    columns = f"columns {_cells(passage.header)}" if passage.header else ""
    return Quote(passage.path, unit.first, unit.last, "\n".join(lines), "; ".join(filter(None, (under, columns))))


def _cells(row: str) -> str:
    return ", ".join(cell.strip() for cell in row.strip().strip("|").split("|"))


def _best_sentences(text: str, lexicon: Lexicon) -> str:
    sentences = _SENTENCE.split(text)
    first, last = _best_run([_relevance(one, lexicon) for one in sentences], [len(one) for one in sentences])
    chosen = " ".join(sentences[first : last + 1]).strip()
    if len(chosen) > LONGEST:
        chosen, last = chosen[:LONGEST].rsplit(" ", 1)[0], -1
    return ("… " if first > 0 else "") + chosen + ("" if last == len(sentences) - 1 else " …")


def _best_run(scores: list[float], sizes: list[int]) -> tuple[int, int]:
    """Return the first and last of the neighbours that grow from the best one, the better side first."""
    first = last = scores.index(max(scores))
    size = sizes[first]
    while True:
        sides = [(scores[i], i > last, i) for i in (first - 1, last + 1) if 0 <= i < len(scores)]
        fitting = [side for side in sides if size + sizes[side[2]] + 1 <= LONGEST]
        if not fitting:
            return first, last
        chosen = max(fitting)[2]
        size += sizes[chosen] + 1
        first, last = min(first, chosen), max(last, chosen)


def _relevance(text: str, lexicon: Lexicon) -> float:
    places = lexicon.positions(stems(text))
    return sum(lexicon.weights[term] * max(strength for _, strength in each) for term, each in places.items())
