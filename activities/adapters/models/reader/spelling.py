"""Spelling: a term that occurs nowhere, read as the word of the evidence that is closest to it."""

from dataclasses import replace

from orga.activities.adapters.models.reader.lexicon import MISSPELT, Lexicon
from orga.activities.adapters.models.reader.question import Question, Term


def respelled(question: Question, lexicon: Lexicon) -> tuple[Question, dict[str, str]]:
    """Return the question with its misspelt terms replaced, and what was read as what."""
    found = {term: _correction(place, lexicon) for place, term in enumerate(question.terms)}
    fixed = {term: Term((word,), word, term.weight) for term, word in found.items() if word}
    terms = tuple(fixed.get(term, term) for term in question.terms)
    pairs = tuple((fixed.get(a, a), fixed.get(b, b)) for a, b in question.pairs)
    return replace(question, terms=terms, pairs=pairs), {term.surface: fix.surface for term, fix in fixed.items()}


def _correction(place: int, lexicon: Lexicon) -> str | None:
    words = {word: strength for word, each in lexicon.near.items() for term, strength in each if term == place}
    close = sorted(word for word, strength in words.items() if strength == MISSPELT)
    return close[0] if close and max(words.values()) == MISSPELT else None
