"""Selection: which ranked passages become quotes, without repeating each other and with all terms in view."""

from rapidfuzz import fuzz

from orga.activities.adapters.models.reader.evidence import Evidence
from orga.activities.adapters.models.reader.lexicon import Lexicon
from orga.activities.adapters.models.reader.quote import Quote, quote_of
from orga.activities.adapters.models.reader.ranking import Ranked
from orga.activities.adapters.models.reader.words import stems

_LOOKED_AT = 40
_WORTH = 0.5
"""Part of the best score that a passage needs to be quoted."""
_WORTH_FOR_NEW = 0.1
"""The same for one that brings a term which no better passage has."""
_UNREAD = 0.6
_SAME = 85.0
"""Similarity, of 100, from which two quotes say the same."""


def selected_quotes(ranked: list[Ranked], lexicon: Lexicon, evidence: Evidence, most: int) -> list[Quote]:
    """Return at most so many quotes, best first; what was only hit by a search stands behind what was read."""
    ranked = sorted(ranked, key=lambda one: -_score(one, evidence))
    quotes: list[Quote] = []
    seen: set[int] = set()
    for one in ranked[:_LOOKED_AT]:
        quote = quote_of(one.passage, lexicon)
        terms = {term for term in lexicon.positions(stems(quote.text)) if lexicon.weights[term] > 0}
        needed = _WORTH_FOR_NEW if terms - seen else _WORTH
        if _score(one, evidence) < needed * _score(ranked[0], evidence) or any(
            _repeats(quote, other) for other in quotes
        ):
            continue
        quotes.append(quote)
        seen |= terms
        if len(quotes) == most:
            break
    return quotes


def _score(ranked: Ranked, evidence: Evidence) -> float:
    is_read = evidence.is_read(ranked.passage.path, ranked.passage.first)
    return ranked.score * (1.0 if is_read or not evidence.read else _UNREAD)


def _repeats(quote: Quote, other: Quote) -> bool:
    overlaps = quote.path == other.path and quote.first <= other.last and other.first <= quote.last
    return overlaps or fuzz.ratio(quote.text, other.text) >= _SAME
