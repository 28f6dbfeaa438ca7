"""How much alike two texts are, by normalized Levenshtein distance."""

from rapidfuzz.distance import Levenshtein

MAX_COMPARED_CHARS = 500
"""The time to compare grows with the product of the lengths; what an error is about stands at its beginning."""


def similarity(one: str, other: str) -> float:
    """Return 1 - distance / length of the longer one: 1.0 for two empty texts, 0.0 when one is empty."""
    return Levenshtein.normalized_similarity(one[:MAX_COMPARED_CHARS], other[:MAX_COMPARED_CHARS])
