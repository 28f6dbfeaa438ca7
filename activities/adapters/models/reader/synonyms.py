"""Synonyms: words that mean nearly the same, by the small embeddings, where they are installed."""

import functools
from dataclasses import replace
from importlib.util import find_spec

from orga.activities.adapters.models.reader.question import Question, Term
from orga.activities.adapters.models.reader.words import stem
from orga.activities.knowledge.ports import KnowledgeError

_MOST = 3
"""Of one word."""


def with_synonyms(question: Question) -> Question:
    """Return the question whose terms have their synonyms; names, numbers and phrases have none."""
    widened = {term: _widened(term) for term in question.terms}
    pairs = tuple((widened.get(a, a), widened.get(b, b)) for a, b in question.pairs)
    return replace(question, terms=tuple(widened.values()), pairs=pairs)


def _widened(term: Term) -> Term:
    if term.is_exact or len(term.stems) > 1 or not term.surface.islower():
        return term
    return replace(term, alike=near(term.surface))


@functools.lru_cache(maxsize=4096)
def near(word: str) -> tuple[str, ...]:
    """Return the words nearest in meaning that are no forms of the word itself; none without the extra `embeddings`."""
    if find_spec("wordllama") is None:
        return ()
    from orga.activities.adapters.knowledge.embedders.near_words import near_words

    try:
        found = near_words(word) or near_words(word.removesuffix("s"))
    except KnowledgeError:  # without its weights it is as if it were not there; `orga doctor` tells
        return ()
    others = {stem(other): other for other in reversed(found) if not _is_piece(other, word)}
    others.pop(stem(word), None)
    return tuple(reversed(others.values()))[:_MOST]


def _is_piece(other: str, word: str) -> bool:
    """Whether it is another form of the word, which its stem finds, or a part of it that the tokenizer made."""
    return other[:3] == word[:3]
