"""The lexicon: how well words of the evidence match the terms of a question, and how rare each term is."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, process

from orga.activities.adapters.models.reader.evidence import Evidence
from orga.activities.adapters.models.reader.question import Question, Term
from orga.activities.adapters.models.reader.searches import query_of
from orga.activities.adapters.models.reader.words import shared_start, stems

_CORPUS = 300
"""Lines of a notional folder that hits are set against: a term with 100 hits says little, one with 2 much."""
MISSPELT, _RELATED = 0.7, 0.6
"""Strengths of a word that is one or two letters off, and of one with the same beginning."""
_HIDDEN = 4
"""Hits that one hit of a search stands for that stopped at its limit."""


@dataclass(frozen=True)
class Lexicon:
    """Strengths of words for terms, and weights of terms."""

    near: dict[str, list[tuple[int, float]]]
    """Terms, by place, that a stem matches, each with a strength: 1 the same, less a relative or a misspelling."""
    compounds: tuple[tuple[int, tuple[str, ...]], ...]
    weights: tuple[float, ...]
    """What each term of the question adds; 0 for one that occurs nowhere."""

    def positions(self, found: Sequence[str]) -> dict[int, list[tuple[int, float]]]:
        """Return where each term occurs in a sequence of stems, with strengths."""
        places: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for place, one in enumerate(found):
            for term, strength in self.near.get(one, ()):
                places[term].append((place, strength))
        for term, parts in self.compounds:
            for place in _runs(found, parts):
                places[term].append((place, 1.0))
        return places


def lexicon_of(question: Question, evidence: Evidence, vocabulary: Iterable[str]) -> Lexicon:
    """Return the lexicon of a question over the stems of the evidence."""
    vocabulary = set(vocabulary)
    near: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for place, term in enumerate(question.terms):
        if len(term.stems) == 1:
            for relative, strength in relatives(term.stems[0], vocabulary).items():
                near[relative].append((place, strength))
    compounds = tuple((i, term.stems) for i, term in enumerate(question.terms) if len(term.stems) > 1)
    counts = _line_counts(evidence, Lexicon(near, compounds, ()))
    weights = tuple(_weight(term, counts.get(i, 0), evidence) for i, term in enumerate(question.terms))
    return Lexicon(near, compounds, weights)


def relatives(stem: str, vocabulary: Iterable[str]) -> dict[str, float]:
    """Return the stems of the vocabulary that stand for `stem`; misspellings only when it does not occur itself."""
    vocabulary = set(vocabulary)
    found = {one: _RELATED for one in vocabulary if _is_relative(stem, one)}
    if stem in vocabulary:
        found[stem] = 1.0
    elif len(stem) >= 5:
        close = process.extract(stem, vocabulary, scorer=fuzz.ratio, score_cutoff=82, limit=None)
        found |= {one: MISSPELT for one, _, _ in close if not one.isdigit()}
    return found


def _is_relative(stem: str, other: str) -> bool:
    shared = len(shared_start(stem, other))
    return shared >= 4 and shared >= 0.7 * max(len(stem), len(other)) and not stem.isdigit()


def _line_counts(evidence: Evidence, lexicon: Lexicon) -> dict[int, int]:
    counts: dict[int, int] = defaultdict(int)
    for lines in evidence.lines.values():
        for text in lines.values():
            for term in lexicon.positions(stems(text)):
                counts[term] += 1
    return counts


def _weight(term: Term, lines: int, evidence: Evidence) -> float:
    hits = evidence.searches.get(query_of(term, regex=True)) or evidence.searches.get(query_of(term, regex=False))
    if lines == 0:
        return 0.0
    count = lines if hits is None else max(hits.count, 1) * (_HIDDEN if hits.is_cut else 1)
    return term.weight * math.log(1 + _CORPUS / (1 + count))


def _runs(found: Sequence[str], parts: tuple[str, ...]) -> list[int]:
    first, size = parts[0], len(parts)
    return [i for i, one in enumerate(found) if one == first and tuple(found[i : i + size]) == parts]
