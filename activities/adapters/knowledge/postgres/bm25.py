"""How much the words of an item weigh for a query: as FTS5 of SQLite has it, number by number."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

_SATURATION = 1.2
_LENGTH = 0.75
_LEAST = 1e-6


@dataclass(frozen=True)
class Match:
    """An item that holds some word of the query."""

    number: int
    size: int
    """Its words, all of them."""
    times: dict[str, int]
    """How often it holds each."""


@dataclass(frozen=True)
class Rarity:
    """What the words are told against: the whole store."""

    items: int
    words: int
    """Of all items together."""
    holding: tuple[tuple[str, int], ...]
    """Each word of the query, and how many items hold it."""


def heaviest(matches: Sequence[Match], rarity: Rarity, limit: int) -> list[int]:
    """Return the numbers of the heaviest, of equal ones the newest first."""
    weights = [(word, _rare(rarity.items, holding)) for word, holding in rarity.holding]
    average = rarity.words / rarity.items if rarity.items else 1.0
    ordered = sorted(matches, key=lambda match: (-_weight(match, weights, average), -match.number))
    return [match.number for match in ordered[:limit]]


def _rare(items: int, holding: int) -> float:
    """Return the weight of a word; one that more than half of all hold keeps a little."""
    return max(log((items - holding + 0.5) / (holding + 0.5)), 0.0) or _LEAST


def _weight(match: Match, weights: Sequence[tuple[str, float]], average: float) -> float:
    total = 0.0
    for word, weight in weights:
        times = float(match.times.get(word, 0))
        length = _SATURATION * (1 - _LENGTH + _LENGTH * match.size / average)
        total += weight * ((times * (_SATURATION + 1.0)) / (times + length))
    return total
