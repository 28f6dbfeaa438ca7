"""Which rules of a decision can never decide, because those before them take every case that they are for."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf

from workflows.types.decision import GroundedDecision
from workflows.types.decision_values import Condition, Kind, Number, Value

MAX_BOXES = 20_000
"""Pieces of the space of cases that are looked at; the question is a hard one when rules overlap in many ways."""

Box = dict[str, frozenset[Value]]
"""Cases, by variable: any of these values with any of those."""


class TooEntangled(ValueError):
    """It cannot be told in reasonable time whether each rule can decide."""


def unreachable(decision: GroundedDecision) -> tuple[int, ...]:
    """Return the indexes of the rules that never decide. Numbers are looked at where the rules distinguish them.

    Raises:
        TooEntangled: The rules overlap in too many ways.
    """
    values = {name: _values(kind, _conditions(decision, name)) for name, kind in decision.variables.items()}
    boxes = [_box(rule.when, values) for rule in decision.rules]
    patience = iter(range(MAX_BOXES))
    return tuple(index for index, box in enumerate(boxes) if not _left(box, boxes[:index], patience))


def _left(box: Box, others: list[Box], patience: Iterator[int]) -> list[Box]:
    """Return what is left of a box without the others."""
    left = [box]
    for other in others:
        pieces: list[Box] = []
        for one in left:
            if next(patience, None) is None:
                raise TooEntangled
            pieces += _without(one, other)
        left = pieces
    return left


def _conditions(decision: GroundedDecision, name: str) -> list[Condition]:
    return [rule.when[name] for rule in decision.rules if name in rule.when]


def _values(kind: Kind, conditions: list[Condition]) -> frozenset[Value]:
    """Return values of which each stands for all that the conditions treat alike."""
    if kind.enum or kind.type == "boolean":
        return frozenset(kind.enum or (False, True))
    low = -inf if kind.minimum is None else kind.minimum
    high = inf if kind.maximum is None else kind.maximum
    named = {number for condition in conditions for number in _numbers(condition) if low <= number <= high}
    points = sorted(named | {low, high})
    between = (_between(kind, *pair) for pair in pairwise(points))
    return frozenset([*points, *(number for number in between if number is not None)])


def _numbers(condition: Condition) -> Iterator[Number]:
    for number in (condition.at_least, condition.at_most, *condition.any_of):
        if isinstance(number, (int, float)):
            yield number


def _between(kind: Kind, low: Number, high: Number) -> Number | None:
    """Return a number of this kind between two others, if there is one."""
    number = low + 1 if kind.type == "integer" else low + (high - low) / 2
    return number if low < number < high else None


def _box(when: Mapping[str, Condition], values: Mapping[str, frozenset[Value]]) -> Box:
    return {
        name: frozenset(value for value in among if name not in when or when[name].holds(value))
        for name, among in values.items()
    }


def _without(box: Box, other: Box) -> Iterator[Box]:
    """Yield the pieces of a box that are outside of another."""
    if not all(box[name] & other[name] for name in box):
        yield box
        return
    inside = dict(box)
    for name in box:
        if outside := inside[name] - other[name]:
            yield {**inside, name: outside}
        inside[name] &= other[name]
