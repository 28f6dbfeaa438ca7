"""Searches: the queries that find a question's terms, as regular expressions or as plain text."""

import re
from collections.abc import Iterable
from itertools import pairwise

from orga.activities.adapters.models.reader.question import Question, Term
from orga.activities.adapters.models.reader.words import IRREGULAR, NUMBERS, SHORT_FORMS, parts, shared_start, stem

_SPECIFIC = 6
"""Letters from which a stem is searched inside words too: `timeout` in `readTimeout`, not `gate` in `delegate`."""

NEAR = ".*"
"""Between two words that are searched side by side."""

_OR = "|"
_BEGINS = r"\b"
_BEGINNINGS = re.compile(r"\\b\(([^()]*)\)(?!\\b)")
"""Of several words, as a query has them."""

_TELLING = 2
"""Words that are searched by themselves."""
_NEIGHBOURS = 5
"""Words of which two have to stand on a line."""

_WRITTEN = {"funf": "fünf", "zwolf": "zwölf", "dreissig": "dreißig"}
_FORMS = {stem(verb): forms.split() for verb, forms in IRREGULAR.items()}
_LONG_STEMS = {stem(long): short for short, long in SHORT_FORMS.items()}


def queries_of(question: Question, *, regex: bool) -> tuple[str, ...]:
    """Return the queries of a question, the most telling first: names, numbers and phrases; neighbours; single words.

    At most three, as people would write them; without regular expressions one for each term.
    """
    singles = sorted((t for t in question.terms if len(t.stems) == 1), key=_telling, reverse=True)
    exact = [term for term in question.terms if len(term.stems) > 1] + [term for term in singles if term.is_exact]
    others = [term for term in singles if not term.is_exact and not _is_part(term, exact)]
    if not regex:
        return tuple(dict.fromkeys(_plain_query_of(term) for term in (*exact, *others)))
    queries = [_any_of(exact), _two_of(others[:_NEIGHBOURS]), _any_of(others[:_TELLING])]
    return tuple(dict.fromkeys(filter(None, queries)))


def in_words(query: str, question: Question) -> str:
    """Return what a query looks for, in the words of the question."""
    query = _BEGINNINGS.sub(lambda found: _OR.join(_BEGINS + each for each in found[1].split(_OR)), query)
    named = {each: term.surface for term in question.terms for each in (_plain_query_of(term), *_patterns(term))}
    known = _OR.join(re.escape(pattern) for pattern in sorted(named, key=len, reverse=True))
    query = re.sub(known, lambda found: named[found[0]], query) if known else query
    either, _, beside = query.partition(NEAR)
    halves = [list(dict.fromkeys(half.strip("()").split(_OR))) for half in (either, beside)]
    if halves[1] == halves[0]:
        return f"two of {', '.join(halves[0])}"
    return " near ".join(filter(None, (" or ".join(half) for half in halves)))


def _any_of(terms: list[Term]) -> str:
    return _either([pattern for term in terms for pattern in _patterns(term)])


def _either(patterns: list[str]) -> str:
    """Return the query for any of them; what words may begin with stands together behind one mark."""
    distinct = list(dict.fromkeys(patterns))
    begins = [each for each in distinct if each.startswith(_BEGINS) and not each.endswith(_BEGINS)]
    others = [each for each in distinct if each not in begins]
    if len(begins) > 1:
        begins = [f"{_BEGINS}({_OR.join(each.removeprefix(_BEGINS) for each in begins)})"]
    return _OR.join([*others, *begins])


def _two_of(terms: list[Term]) -> str:
    """Return the query for lines that hold two of the terms, in whatever order."""
    if len(terms) < 2:
        return ""
    either = _any_of(terms)
    side = either if _BEGINNINGS.fullmatch(either) else f"({either})"
    return f"{side}{NEAR}{side}"


def _is_part(term: Term, longer: list[Term]) -> bool:
    return any(term.stems[0] in other.stems for other in longer if len(other.stems) > 1)


def _patterns(term: Term) -> list[str]:
    """Return the regular expressions of which each finds a term."""
    if term.is_run:
        return [_joined(pair) for pair in pairwise(parts(term.surface))]
    if len(term.stems) > 1:
        return [_joined(parts(term.surface))]
    return list(dict.fromkeys([_pattern(term), *map(_word, (*_forms(term), *term.alike))]))


def _joined(words: Iterable[str]) -> str:
    return "[-_. ]?".join(map(re.escape, words))


def _forms(term: Term) -> list[str]:
    return [] if term.is_exact else _FORMS.get(term.stems[0], [])


def _plain_query_of(term: Term) -> str:
    """Return the longest text that all forms of a term share."""
    if term.is_run:
        return " ".join(parts(term.surface)[:2])
    return term.surface if len(term.stems) > 1 else _plain(term)


def _pattern(term: Term) -> str:
    root, written = term.stems[0], term.surface.casefold()
    if root.isdigit():
        return rf"\b({_OR.join([root, *_number_words(root)])})\b"
    if term.is_exact:
        return rf"\b{re.escape(term.surface)}"
    if not written.isascii():
        return re.escape(_plain(term))
    core = re.escape(_LONG_STEMS.get(root, root))
    if root.endswith("i"):
        core = re.escape(root[:-1]) + "[iy]"
    elif root.endswith("id") and len(root) >= 5:
        core = re.escape(root[:-1]) + "[ds]"
    return core if len(core) >= _SPECIFIC else _word(core)


def _number_words(digits: str) -> list[str]:
    return [_WRITTEN.get(word, word) for word, number in NUMBERS.items() if number == digits]


def _word(begins: str) -> str:
    """Return the pattern of a short word, which is looked for where words begin."""
    return rf"\b{begins}"


def _plain(term: Term) -> str:
    shared = shared_start(term.stems[0], term.surface.casefold())
    return shared if len(shared) >= 3 and term.surface.isascii() else term.surface


def _telling(term: Term) -> tuple[float, int]:
    return term.weight, len(term.surface)


def loose_queries(missing: list[Term], *, regex: bool) -> tuple[str, ...]:
    """Return queries for terms that occur nowhere: by the first letters, or the outer ones with a slip between."""
    long = [root for term in missing if len(root := term.stems[0]) > 4]
    if regex:
        return (_OR.join(map(_loose, long)),) if long else ()
    return tuple(root[: max(4, len(root) - 3)] for root in long)


def _loose(root: str) -> str:
    head, middle = re.escape(root[: max(4, len(root) - 3)]), len(root) - 3
    return rf"\b({head}|{re.escape(root[:2])}\w{{{middle - 1},{middle + 1}}}{re.escape(root[-1])})"
