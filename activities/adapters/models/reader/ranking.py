"""Ranking: which passages answer the question, by rare terms, closeness, headings and kind of file."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from orga.activities.adapters.models.reader.evidence import Evidence
from orga.activities.adapters.models.reader.files import is_named, prior
from orga.activities.adapters.models.reader.finding import Finding, finding_in
from orga.activities.adapters.models.reader.lexicon import Lexicon, lexicon_of
from orga.activities.adapters.models.reader.passages import Passage, passages_of
from orga.activities.adapters.models.reader.question import Question
from orga.activities.adapters.models.reader.words import stems, words

_K1, _B = 0.9, 0.7
_USUAL_LENGTH = 60
"""Words of a usual passage, for BM25's length norm."""
_LONGEST = 2
"""Usual lengths from which length no longer counts: of a very long line only the best sentences are quoted."""
_LONG_UNIT = 100
"""Words of what answers at which it counts half of what a very short one does."""
_HEADING, _PATH = 1.0, 0.4
"""What a term in the heading above or in the path counts beside one in the text."""
_AS_WRITTEN = 1.0
"""What it brings that the words of the question stand there as they are asked, in no other form."""
_NUMERIC = re.compile(r"\b(how (?:long|many|much|often|big|large)|default|limit|maximum|minimum|timeout|value)", re.I)


@dataclass(frozen=True)
class Ranked:
    """A passage and how well it answers."""

    passage: Passage
    score: float
    coverage: float
    """Part of the question's weight whose terms it holds, 0 to 1."""
    terms: frozenset[int] = frozenset()
    """Places of the terms in its text."""
    finding: Finding | None = None
    """What of it answers; None where it only has some of the words."""


def ranked_passages(question: Question, evidence: Evidence) -> tuple[list[Ranked], Lexicon]:
    """Return the passages that hold any term, best first, and the lexicon that judged them."""
    passages = [p for path, lines in evidence.lines.items() for p in passages_of(path, lines)]
    found = {id(p): stems(p.text) for p in passages}
    vocabulary = {one for each in found.values() for one in each}
    vocabulary |= {one for p in passages for one in stems(f"{p.path} {' '.join(p.headings)}")}
    lexicon = lexicon_of(question, evidence, vocabulary)
    ranked = [_ranked(p, found[id(p)], lexicon, question) for p in passages]
    ranked = [one for one in ranked if one.score > 0]
    return sorted(ranked, key=_order), lexicon


def _order(ranked: Ranked) -> tuple[bool, float, str, int]:
    return ranked.finding is None, -ranked.score, ranked.passage.path, ranked.passage.first


def _ranked(passage: Passage, found: list[str], lexicon: Lexicon, question: Question) -> Ranked:
    in_text = lexicon.positions(found)
    in_heading = {term: [(-1, 1.0)] for term in lexicon.positions(stems(" ".join(passage.headings)))}
    in_path = lexicon.positions(stems(passage.path))
    norm = _K1 * (1 - _B + _B * min(len(found) / _USUAL_LENGTH, _LONGEST))
    score = covered = 0.0
    for term, weight in enumerate(lexicon.weights):
        frequency = sum(strength for _, strength in in_text.get(term, ()))
        frequency += _HEADING * bool(in_heading.get(term)) + _PATH * bool(in_path.get(term))
        score += weight * frequency * (_K1 + 1) / (frequency + norm)
        best = max((s for places in (in_text, in_heading) for _, s in places.get(term, ())), default=0.0)
        covered += weight * best
    if not in_text:
        return Ranked(passage, 0.0, 0.0)
    coverage = covered / (sum(lexicon.weights) or 1.0)
    score *= (0.3 + 0.7 * coverage) * (1 + 0.5 * _closeness(in_heading | in_text)) * prior(passage.path)
    finding = None if passage.is_heading or passage.is_imports else finding_in(passage, question, lexicon)
    if finding is not None:
        said = stems(finding.unit.text)
        score *= 1 + _AS_WRITTEN * _as_written(finding.unit.text, question)
        near = 1 + _closeness(lexicon.positions(said))
        score *= near * finding.coverage**2 / (1 + len(said) / _LONG_UNIT)
    return Ranked(passage, score * _cues(passage, question), coverage, frozenset(in_text), finding)


def _as_written(text: str, question: Question) -> float:
    """Return the part of the question's words that a text has as they are asked: `serviced` is no `service`."""
    held = set(words(text))
    asked = [word for term in question.terms if len(term.stems) == 1 for word in words(term.surface)]
    return sum(word in held for word in asked) / len(asked) if asked else 0.0


def _closeness(places: Mapping[int, list[tuple[int, float]]]) -> float:
    """Return 1 when all terms found stand side by side, and less the wider the smallest span that holds them."""
    if len(places) < 2:
        return 0.0
    return 1 / (1 + math.log(max(1.0, _smallest_span(places) / len(places))))


def _smallest_span(places: Mapping[int, list[tuple[int, float]]]) -> int:
    stream = sorted((place, term) for term, each in places.items() for place, _ in each)
    latest: dict[int, int] = {}
    smallest = stream[-1][0] - stream[0][0] + 1
    for place, term in stream:
        latest[term] = place
        if len(latest) == len(places):
            smallest = min(smallest, place - min(latest.values()) + 1)
    return smallest


def _cues(passage: Passage, question: Question) -> float:
    factor = 1.15 if _NUMERIC.search(question.text) and re.search(r"\d", passage.text) else 1.0
    factor *= 0.7 if passage.is_heading else 0.4 if passage.is_imports else 0.8 if passage.is_fenced else 1.0
    return factor * (1.4 if is_named(passage.path, question.paths) else 1.0)
