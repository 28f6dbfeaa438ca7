"""Selection: which ranked passages become quotes, without repeating each other and with all terms in view."""

from rapidfuzz import fuzz

from orga.activities.adapters.models.reader.evidence import Evidence
from orga.activities.adapters.models.reader.lexicon import Lexicon
from orga.activities.adapters.models.reader.quote import Quote, quote_of_finding
from orga.activities.adapters.models.reader.ranking import Ranked

_LOOKED_AT = 40
_WORTH = 0.6
"""Part of the best score, and of the best coverage, that a further passage needs to be quoted."""
_AS_GOOD = 0.9
_UNREAD = 0.6
_SAME = 85.0
"""Similarity, of 100, from which two quotes say the same."""


def selected_quotes(ranked: list[Ranked], lexicon: Lexicon, evidence: Evidence, most: int) -> list[Quote]:
    """Return at most so many quotes of what answers, best first; what was read stands before what a search hit."""
    answering = [(one, one.finding, _score(one, evidence)) for one in ranked if one.finding is not None]
    answering.sort(key=lambda each: -each[2])
    quotes: list[Quote] = []
    for one, finding, score in answering[:_LOOKED_AT]:
        quote = quote_of_finding(one.passage, finding, lexicon)
        _, best, best_score = answering[0]
        is_worth = score >= _WORTH * best_score and finding.coverage >= _AS_GOOD * best.coverage
        if is_worth and not any(repeats(quote, other) for other in quotes):
            quotes.append(quote)
            if len(quotes) == most:
                break
    return quotes


def _score(ranked: Ranked, evidence: Evidence) -> float:
    is_read = evidence.is_read(ranked.passage.path, ranked.passage.first)
    return ranked.score * (1.0 if is_read or not evidence.read else _UNREAD)


def repeats(quote: Quote, other: Quote) -> bool:
    """Return whether two quotes say the same."""
    overlaps = quote.path == other.path and quote.first <= other.last and other.first <= quote.last
    return overlaps or fuzz.ratio(quote.text, other.text) >= _SAME
