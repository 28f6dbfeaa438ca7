"""Finding: whether a unit answers the question, which takes every name and number of it and most of its other words."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rapidfuzz import fuzz

from orga.activities.adapters.models.reader.lexicon import Lexicon
from orga.activities.adapters.models.reader.passages import Passage
from orga.activities.adapters.models.reader.question import Question, Term
from orga.activities.adapters.models.reader.units import Unit, units_of
from orga.activities.adapters.models.reader.words import NUMBERS, OPPOSITES, folded, stems, words

ANSWERS = 0.6
"""Part of the question's other words, by weight, that a unit needs; those that occur nowhere count."""
_CONTEXT = 0.85
"""What a word in a heading, the file's name or its first line counts beside one in the text itself."""
_PER_SENTENCE = 0.03
"""What each further sentence has to bring."""
_RIVAL = 75.0
"""Similarity, of 100, from which another name may be taken for one that is asked for."""
_AMOUNTS = frozenset(
    [
        "every",
        "never",
        "none",
        "once",
        "twice",
        "half",
        "einmal",
        "zweimal",
        "nie",
        "halb",
        "daily",
        "free",
        "unlimited",
    ]
)

_ASKED = re.compile(r"[^\n?]+\?")

_ONE = re.compile(
    r"(?<!\bthe )(?<!\bthis )(?<!\bthat )(?<!\beach )(?<!\bfirst )(?<!\bwhich )(?<!\bother )"
    r"\bone (?!of |that |who |is )\w",
    re.I,
)
"""As a number: "one attempt", not "the one that"."""


@dataclass(frozen=True)
class Finding:
    """A unit that answers."""

    unit: Unit
    coverage: float
    """Of all words of the question, 0 to 1."""


def finding_in(passage: Passage, question: Question, lexicon: Lexicon) -> Finding | None:
    """Return the unit of a passage that answers best, the shortest of equals; None where none answers."""
    around = lexicon.strengths(stems(passage.surroundings))
    head = lexicon.strengths(stems(passage.header))
    found = [each for unit in units_of(passage) if (each := _finding(unit, question, lexicon, around, head))]
    return max(found, key=lambda each: round(each.coverage - _PER_SENTENCE * len(each.unit.texts), 3), default=None)


def _finding(
    unit: Unit, question: Question, lexicon: Lexicon, around: dict[int, float], head: dict[int, float]
) -> Finding | None:
    inside = lexicon.strengths(stems(_without_question(unit.text, question.text)))
    if (
        not inside
        or not lexicon.strengths(stems(unit.texts[0]))  # what stands before the answer brings only its number
        or (question.wants_number and not _has_amount(unit.text))
        or _is_mixed(unit, question.terms)
        or _says_opposite(unit, question.terms)
    ):
        return None
    best = {place: _CONTEXT * strength for place, strength in around.items()}
    for place, strength in (*head.items(), *inside.items()):
        best[place] = max(best.get(place, 0.0), strength)
    exact = [place for place, term in enumerate(question.terms) if term.is_exact]
    if any(max(inside.get(place, 0.0), around.get(place, 0.0)) < 1.0 for place in exact):
        return None
    others = [place for place in range(len(question.terms)) if place not in exact and not lexicon.is_part[place]]
    rest = [place for place in others if not question.terms[place].is_added] or others
    if rest and (not any(place in inside or place in head for place in rest) and not any(p in inside for p in exact)):
        return None
    coverage = _part(rest, best, lexicon)
    return Finding(unit, _part(range(len(question.terms)), best, lexicon)) if coverage >= ANSWERS else None


def _without_question(text: str, question: str) -> str:
    """Return the text without what the question asks, and what was added to it: who says the same does not answer."""
    first, *added = question.split("\n")
    for asked in (*_ASKED.findall(first), *added):
        text = re.sub(r"\s+".join(map(re.escape, asked.split())), " ", text, flags=re.IGNORECASE)
    return text


def _part(places: Iterable[int], strengths: dict[int, float], lexicon: Lexicon) -> float:
    places = list(places)
    whole = sum(lexicon.worth[place] for place in places)
    return sum(lexicon.worth[place] * strengths.get(place, 0.0) for place in places) / whole if whole else 1.0


def _has_amount(text: str) -> bool:
    return _ONE.search(text) is not None or any(
        word.isdigit() or word[:1].isdigit() or word in NUMBERS or word in _AMOUNTS for word in words(text)
    )


def _is_mixed(unit: Unit, terms: Iterable[Term]) -> bool:
    """Whether sentences are joined of which one is about another name or number than the question's."""
    if len(unit.texts) < 2:
        return False
    sentences = [words(text) for text in unit.texts]
    return any(
        _rivals(sentence, term)
        for term in terms
        if term.is_exact
        for sentence in sentences
        if not _holds(sentence, term)
    )


def _says_opposite(unit: Unit, terms: Iterable[Term]) -> bool:
    """Whether a sentence says `new` where the question says `old`, and does not say `old`."""
    sentences = [set(words(text)) for text in unit.texts]
    pairs = [(set(words(term.surface)), OPPOSITES.get(folded(term.surface), frozenset())) for term in terms]
    return any(said & others and not said & own for own, others in pairs for said in sentences)


def _holds(sentence: list[str], term: Term) -> bool:
    return set(words(term.surface)) <= set(sentence)


def _rivals(sentence: list[str], term: Term) -> bool:
    return any(_is_rival(word, part) for part in words(term.surface) for word in sentence)


def _is_rival(word: str, part: str) -> bool:
    if part.isdigit():
        return word.isdigit() and len(word) == len(part) and word != part
    return word != part and len(word) > 2 and bool(re.match(r"[^\d]", word)) and fuzz.ratio(word, part) >= _RIVAL
