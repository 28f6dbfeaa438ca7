"""The lexicon: how well words of the evidence match the terms of a question, and how rare each term is."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, process

from orga.activities.adapters.models.reader.evidence import Evidence
from orga.activities.adapters.models.reader.question import Question, Term
from orga.activities.adapters.models.reader.words import folded, parts, shared_start, stem, stems

_CORPUS = 300
"""Lines of a notional folder that hits are set against: a term with 100 hits says little, one with 2 much."""
MISSPELT, _RELATED = 0.7, 0.6
"""Strengths of a word that is one or two letters off, and of one with the same beginning."""
_INFLECTED, _ALIKE = 0.95, 0.8
"""Of one that differs in its ending alone, and of one that means nearly the same."""
_ENDINGS = frozenset(["s", "e", "n", "en", "er", "es", "em", "ern", "d", "ed", "t"])
_LETTERS = frozenset("dt")
_OWN = 5
"""Letters that two words share at least, where they differ in more than a plain ending: `star` is no `start`."""


@dataclass(frozen=True)
class Lexicon:
    """Strengths of words for terms, and weights of terms."""

    near: dict[str, list[tuple[int, float]]]
    """Terms, by place, that a stem matches, each with a strength: 1 the same, less a relative or a misspelling."""
    compounds: tuple[tuple[int, tuple[str, ...]], ...]
    weights: tuple[float, ...]
    """What each term of the question adds; 0 for one that occurs nowhere."""
    worth: tuple[float, ...] = ()
    """The same, but one that occurs nowhere counts as the rarest there are."""
    is_part: tuple[bool, ...] = ()
    """Whether a term is a part of a longer one."""

    def strengths(self, found: Sequence[str]) -> dict[int, float]:
        """Return how well each term is matched in a sequence of stems, where it is at all."""
        return {term: max(strength for _, strength in each) for term, each in self.positions(found).items()}

    def positions(self, found: Sequence[str]) -> dict[int, list[tuple[int, float]]]:
        """Return where each term occurs in a sequence of stems, with strengths."""
        places: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for place, one in enumerate(found):
            for term, strength in self.near.get(one, ()):
                places[term].append((place, strength))
        for term, row in self.compounds:
            for place in _runs(found, row):
                places[term].append((place, 1.0))
        return places


def lexicon_of(question: Question, evidence: Evidence, vocabulary: Iterable[str]) -> Lexicon:
    """Return the lexicon of a question over the stems of the evidence."""
    vocabulary, proper = set(vocabulary), _proper(evidence)
    near: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for place, term in enumerate(question.terms):
        if len(term.stems) == 1:
            for relative, strength in _matches(term, vocabulary, proper).items():
                near[relative].append((place, strength))
    compounds = tuple((i, term.stems) for i, term in enumerate(question.terms) if len(term.stems) > 1)
    compounds += tuple((i, row[::-1]) for i, row in compounds if question.terms[i].is_exact)  # Keller, Maria
    counts = _line_counts(evidence, Lexicon(near, compounds, ()))
    weights = tuple(_weight(term, counts.get(i, 0)) for i, term in enumerate(question.terms))
    worth = tuple(
        weight or term.weight * math.log(1 + _CORPUS) for weight, term in zip(weights, question.terms, strict=True)
    )
    longer = {one for term in question.terms if len(term.stems) > 1 for one in term.stems}
    is_part = tuple(len(term.stems) == 1 and term.stems[0] in longer for term in question.terms)
    return Lexicon(near, compounds, weights, worth, is_part)


def _matches(term: Term, vocabulary: set[str], proper: set[str]) -> dict[str, float]:
    """Return the stems that stand for a single term: itself for a name or a number, else its relatives, too."""
    root = term.stems[0]
    if term.is_exact:
        return {root: 1.0} if root in vocabulary else {}
    found = relatives(root, vocabulary, () if root in proper and root in vocabulary else vocabulary - proper)
    alike = {stem(word) for word in term.alike} & (vocabulary - proper)
    return dict.fromkeys(alike, _ALIKE) | found


def _proper(evidence: Evidence) -> set[str]:
    """Return the stems that the evidence writes with a capital only: names, and in German nouns."""
    capital, small = set[str](), set[str]()
    for lines in evidence.lines.values():
        for text in lines.values():
            for part in parts(text):
                (capital if part[:1].isupper() else small).add(part)
    return {stem(folded(part)) for part in capital} - {stem(folded(part)) for part in small}


def relatives(root: str, vocabulary: Iterable[str], loosely: Iterable[str] | None = None) -> dict[str, float]:
    """Return the stems of the vocabulary that stand for `root`; misspellings only when it does not occur itself.

    `loosely` are those that may differ in more than their ending; all of them where it is left out.
    """
    vocabulary = set(vocabulary)
    loosely = vocabulary if loosely is None else set(loosely)
    found = {one: _RELATED for one in loosely if _is_relative(root, one)}
    found |= {one: _INFLECTED for one in vocabulary if _is_inflected(root, one)}
    if root in vocabulary:
        found[root] = 1.0
    elif len(root) >= 5 and not any(strength == _INFLECTED for strength in found.values()):
        close = process.extract(root, loosely, scorer=fuzz.ratio, score_cutoff=82, limit=None)
        found |= {one: MISSPELT for one, _, _ in close if not one.isdigit()}
    return found


def _is_inflected(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    ending = long.removeprefix(short)
    return long.startswith(short) and ending in _ENDINGS and len(short) >= (_OWN if ending in _LETTERS else 4)


def _is_relative(stem: str, other: str) -> bool:
    shared = len(shared_start(stem, other))
    return shared >= _OWN and shared >= 0.7 * max(len(stem), len(other)) and not stem.isdigit()


def _line_counts(evidence: Evidence, lexicon: Lexicon) -> dict[int, int]:
    counts: dict[int, int] = defaultdict(int)
    for lines in evidence.lines.values():
        for text in lines.values():
            for term in lexicon.positions(stems(text)):
                counts[term] += 1
    return counts


def _weight(term: Term, lines: int) -> float:
    return term.weight * math.log(1 + _CORPUS / (1 + lines)) if lines else 0.0


def _runs(found: Sequence[str], row: tuple[str, ...]) -> list[int]:
    first, size = row[0], len(row)
    return [i for i, one in enumerate(found) if one == first and tuple(found[i : i + size]) == row]
