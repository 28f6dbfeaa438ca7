"""Searches: the queries that find a question's terms, as regular expressions or as plain text."""

import re

from orga.activities.adapters.models.reader.question import Question, Term
from orga.activities.adapters.models.reader.words import SHORT_FORMS, shared_start, stem, words

_SPECIFIC = 6
"""Letters from which a stem is searched inside words too: `timeout` in `readTimeout`, not `gate` in `delegate`."""

NEAR = ".{0,60}"
"""Between two words that are searched side by side."""

_LONG_STEMS = {stem(long): short for short, long in SHORT_FORMS.items()}


def queries_of(question: Question, *, regex: bool) -> tuple[str, ...]:
    """Return the queries of a question, the most telling first: phrases, neighbours, then rarer-looking words."""
    singles = sorted((t for t in question.terms if len(t.stems) == 1), key=_telling, reverse=True)
    compounds = [query_of(term, regex=regex) for term in question.terms if len(term.stems) > 1]
    pairs = [_pair(a, b) for a, b in question.pairs if regex]
    pairs.sort(key=len, reverse=True)
    return tuple(dict.fromkeys([*compounds, *pairs[:2], *(query_of(term, regex=regex) for term in singles)]))


def query_of(term: Term, *, regex: bool) -> str:
    """Return the query for one term; without regular expressions it is the longest text that its forms share."""
    if len(term.stems) > 1:
        parts = words(term.surface)
        return "[-_. ]?".join(map(re.escape, parts)) if regex else term.surface
    return _pattern(term) if regex else _plain(term)


def _pattern(term: Term) -> str:
    root = term.stems[0]
    if not root.isascii():
        return re.escape(_plain(term))
    core = re.escape(_LONG_STEMS.get(root, root))
    if root.endswith("i"):
        core = re.escape(root[:-1]) + "[iy]"
    elif root.endswith("id") and len(root) >= 5:
        core = re.escape(root[:-1]) + "[ds]"
    return core if len(core) >= _SPECIFIC else rf"(\b|_){core}"


def _plain(term: Term) -> str:
    shared = shared_start(term.stems[0], term.surface)
    return shared if len(shared) >= 3 else term.surface


def _pair(first: Term, second: Term) -> str:
    return f"{_pattern(first)}{NEAR}{_pattern(second)}"


def _telling(term: Term) -> tuple[float, int]:
    return term.weight, len(term.surface)


def loose_queries(missing: list[Term], *, regex: bool) -> tuple[str, ...]:
    """Return queries for terms that occur nowhere: by the first letters, or the outer ones with a slip between."""
    long = [root for term in missing if len(root := term.stems[0]) > 4]
    return tuple(_loose(root) if regex else root[: max(4, len(root) - 3)] for root in long)


def _loose(root: str) -> str:
    head, middle = re.escape(root[: max(4, len(root) - 3)]), len(root) - 3
    return rf"(\b|_)({head}|{re.escape(root[:2])}\w{{{middle - 1},{middle + 1}}}{re.escape(root[-1])})"
