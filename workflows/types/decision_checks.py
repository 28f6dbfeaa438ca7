"""A decision as people write it: what is wrong with it is found when the file is read, not when it is made."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import Annotated

from pydantic import Field, model_validator

from orga.workflows.types.decision import DEFAULT_RULE, TAINTED, Condition, GroundedDecision, Kind, Number, Rule, Value

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


DecisionName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]

MAX_EXACT = 2**53
"""Integers beyond it do not survive every JSON reader."""


class CheckedDecision(GroundedDecision):
    """`[agents.NAME.decisions.NAME]`.

    What a history holds is a plain `GroundedDecision`, so that it reads back whatever is refused by then.
    """

    @model_validator(mode="after")
    def _is_sound(self) -> "CheckedDecision":
        found = [*_kind_problems(self), *_rule_problems(self)]
        if not found:
            found = list(_idle_rules(self))
        if found:
            raise ValueError("; ".join(found))
        return self


def _kind_problems(decision: GroundedDecision) -> Iterator[str]:
    if not decision.fields:
        yield "fields: there are none; name at least one that the model proposes"
    for place, kinds in (("fields", decision.fields), ("facts", decision.facts)):
        for name, kind in kinds.items():
            if problem := _kind_problem(kind):
                yield f"{place}.{name}: {problem}"
            if name == TAINTED:
                yield f"{place}.{name}: every decision has this fact by itself; leave it out, or rename yours"
    for name in decision.fields.keys() & decision.facts.keys():
        yield f"facts.{name}: a field has this name, too; rename one of them"
    if not decision.default:
        yield "default: it is missing, or sets nothing; say what is decided where no rule holds"


def _kind_problem(kind: Kind) -> str:
    has_bounds = kind.minimum is not None or kind.maximum is not None
    if bool(kind.enum) == (kind.type is not None):
        return 'give either enum = [...], or type = "boolean", "integer" or "number"; free text decides nothing'
    if len(set(kind.enum)) < len(kind.enum):
        return "enum: a word stands there twice; leave it out"
    if kind.enum or kind.type == "boolean":
        return "minimum and maximum belong to numbers; leave them out" if has_bounds else ""
    return _bounds_problem(kind)


def _bounds_problem(kind: Kind) -> str:
    if kind.minimum is None or kind.maximum is None:
        return "a number needs minimum and maximum"
    if kind.minimum > kind.maximum:
        return f"minimum {kind.minimum} is above maximum {kind.maximum}"
    if max(abs(kind.minimum), abs(kind.maximum)) > MAX_EXACT:
        return f"minimum and maximum have to stay within {MAX_EXACT}"
    if kind.type == "integer" and (kind.minimum % 1 or kind.maximum % 1):
        return "minimum and maximum of an integer have to be integers"
    return ""


def _rule_problems(decision: GroundedDecision) -> Iterator[str]:
    variables = decision.variables
    for index, rule in enumerate(decision.rules):
        place = f"rules.{index}"
        for name, condition in rule.when.items():
            if name not in variables:
                yield f"{place}.when.{name}: there is no such field or fact; there are: {', '.join(variables)}"
            elif problem := _condition_problem(condition, variables[name]):
                yield f"{place}.when.{name}: {problem}"
        if decision.default:
            yield from _outcome_problems(f"{place}.then", rule.then, decision.default)
    yield from _name_problems(decision.rules)


def _condition_problem(condition: Condition, kind: Kind) -> str:
    bounds = [bound for bound in (condition.at_least, condition.at_most) if bound is not None]
    if bool(condition.any_of) == bool(bounds):
        return "it asks for nothing, or for two things; give a value, a list of values, or at_least and at_most"
    if bounds and (kind.enum or kind.type == "boolean"):
        return f"bounds are for numbers, this is {kind.wording}"
    if len(bounds) == 2 and bounds[0] > bounds[1]:
        return f"at_least {bounds[0]} is above at_most {bounds[1]}, so it never holds"
    for value in (*condition.any_of, *bounds):
        try:
            kind.fitted(value)
        except ValueError as error:
            return str(error)
    return ""


def _outcome_problems(place: str, then: dict[str, Value], default: dict[str, Value]) -> Iterator[str]:
    for name in default.keys() - then.keys():
        yield f"{place}.{name}: it is missing; each rule sets what the default sets"
    for name in then.keys() - default.keys():
        yield f"{place}.{name}: the default does not set it; add it there, or leave it out"
    for name in then.keys() & default.keys():
        if _type(then[name]) != _type(default[name]):
            yield f"{place}.{name}: {then[name]!r} is {_type(then[name])}, in the default it is {_type(default[name])}"


def _name_problems(rules: tuple[Rule, ...]) -> Iterator[str]:
    names = [rule.name for rule in rules if rule.name]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"rules: two are named {name!r}; rename one of them"
        if name == DEFAULT_RULE or name.isdecimal():
            yield f"rules: {name!r} is no name for a rule, it would be taken for another; rename it"


def _idle_rules(decision: GroundedDecision) -> Iterator[str]:
    try:
        for index in unreachable(decision):
            what = f"rules.{index} ({decision.rule_name(index)})"
            yield f"{what}: it never decides, the rules before it take all its cases; move it up, or leave it out"
    except TooEntangled:
        yield "rules: they overlap in too many ways to be checked; use fewer conditions, or make two decisions of it"


def _type(value: Value) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, (int, float)) else "a word"
