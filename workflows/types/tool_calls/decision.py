"""Grounded decisions: the model proposes typed fields, the starter gives facts, and rules compute the outcome."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from orga.workflows.types.record import CheckedInput, Record, replace_fields

Label = Annotated[StrictStr, Field(min_length=1, max_length=100)]
Number = StrictInt | StrictFloat
Value = StrictBool | StrictInt | StrictFloat | Label
VariableName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


class ValueKind(CheckedInput):
    """What a field or a fact can be: one of a few words, a number within bounds, or a truth."""

    enum: tuple[Label, ...] = Field(default=(), max_length=100)
    """The words of which it is one."""
    type: Literal["boolean", "integer", "number"] | None = None
    """Left out where there is an `enum`."""
    minimum: Number | None = None
    """Of a number: the least; it belongs to the bounds."""
    maximum: Number | None = None
    """Both bounds belong to it."""
    description: str = Field(default="", max_length=1_000)
    """For the model."""

    def fitted(self, value: object) -> Value:
        """Return the value as this kind has it; JSON's 3.0 is an integer, too.

        Raises:
            ValueError: It is none of its values.
        """
        match value:
            case str() if value in self.enum:
                return value
            case bool() if self.type == "boolean":
                return value
            case int() | float() if not isinstance(value, bool) and self._is_within_bounds(value):
                return int(value) if self.type == "integer" else value
            case _:
                raise ValueError(f"{_shown_value(value)} is not {self.wording}")

    @property
    def wording(self) -> str:
        """What a value has to be, in words."""
        if self.enum:
            return f"one of {', '.join(self.enum)}"
        what = "an integer" if self.type == "integer" else "a number"
        return "true or false" if self.type == "boolean" else f"{what} from {self.minimum} to {self.maximum}"

    def _is_within_bounds(self, value: Number) -> bool:
        """Return whether a number is within the bounds, both of which have to be there."""
        if self.minimum is None or self.maximum is None or not self.minimum <= value <= self.maximum:
            return False
        return self.type == "number" or (self.type == "integer" and value == int(value))


class Fact(ValueKind):
    """What the starter of a run says."""

    source: str = Field(pattern=r"^(tenant|trusted_context(\.[^.\s]+)+)$", max_length=300)
    """`trusted_context.customer.tier`, or `tenant`."""


class Condition(CheckedInput):
    """What a rule asks of one field or fact. In `orga.toml` a value, a list of words, or a table of bounds."""

    any_of: tuple[Value, ...] = ()
    """Values of which it is to be one; a value or a list alone means this."""
    at_least: Number | None = None
    """Of a number: the least."""
    at_most: Number | None = None
    """Of a number: the most."""

    @model_validator(mode="before")
    @classmethod
    def _from_value(cls, value: Any) -> Any:
        if isinstance(value, (bool, int, float, str)):
            return {"any_of": (value,)}
        return {"any_of": cast("list[Any]", value)} if isinstance(value, (list, tuple)) else value

    def holds(self, value: Value) -> bool:
        """Return whether the value is one of them, and within the bounds; of a kind that the condition is for."""
        if self.any_of:
            return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in self.any_of)
        if isinstance(value, str):
            return False
        low, high = self.at_least, self.at_most
        return (low is None or low <= value) and (high is None or value <= high)


def _shown_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


DECISION_GROUNDED = "DecisionGrounded"
"""The note that tells what was decided, and on which grounds: no activity stands for the call."""

TAINTED = "tainted"
"""A fact that every decision has: whether untrusted content has entered the conversation."""

DEFAULT_RULE = "default"


class Rule(CheckedInput):
    """If all conditions hold, this is the outcome."""

    name: str = Field(default="", max_length=100)
    """For journals and grounds; empty: its number, from 1."""
    when: dict[VariableName, Condition]
    then: dict[VariableName, Value]
    """The outcome, by field."""


class GroundedDecision(CheckedInput):
    """What is decided, from what, and how."""

    description: str = Field(default="", max_length=2_000)
    """For the model: what is decided, and when."""
    required: bool = False
    """Without it no answer ends the run."""
    revisable: bool = False
    """Whether it may be made again; the last one counts."""
    fields: dict[VariableName, ValueKind] = Field(default={}, max_length=20)
    """What the model proposes."""
    facts: dict[VariableName, Fact] = Field(default={}, max_length=20)
    rules: tuple[Rule, ...] = Field(default=(), max_length=100)
    """The first whose conditions all hold decides."""
    default: dict[VariableName, Value] = Field(default={}, max_length=20)
    """The outcome where no rule does."""

    @property
    def variables(self) -> dict[str, ValueKind]:
        """What rules can ask about."""
        return {**self.fields, **self.facts, TAINTED: ValueKind(type="boolean")}

    def rule_name(self, index: int) -> str:
        """Return how grounds call a rule."""
        return self.rules[index].name or str(index + 1)


class Ground(Record):
    """A fact as a decision took it."""

    value: Value
    source: str
    """Where it is from; of `tainted` the tools that brought untrusted content."""


class Decided(Record):
    """A decision with its grounds: what the result tells, the journal, and the model."""

    outcome: dict[str, Value]
    rule: str
    """The rule that decided: its name, else its number from 1; or `default`."""
    fields: dict[str, Value]
    """As the model proposed them."""
    facts: dict[str, Ground]
    declaration: str
    """`sha256:` and 64 hex characters: which wording of the rules this was."""
    iteration: int
    rationale: str = ""
    """The model's own words, cut; nothing follows from them."""
    revision: int = 0
    """How many times it was made before."""

    def with_rationale(self, rationale: str) -> Self:
        """Return the decision with the model's own words."""
        return replace_fields(self, {"rationale": rationale})

    def with_revision(self, revision: int) -> Self:
        """Return the decision as one that was made so often before."""
        return replace_fields(self, {"revision": revision})


MAX_BOXES = 20_000
"""Pieces of the space of cases that are looked at; the question is a hard one when rules overlap in many ways."""

Box = dict[str, frozenset[Value]]
"""Cases, by variable: any of these values with any of those."""


class TooManyCombinations(ValueError):
    """It cannot be told in reasonable time whether each rule can decide."""


def unreachable_rules(decision: GroundedDecision) -> tuple[int, ...]:
    """Return the indexes of the rules that never decide. Numbers are looked at where the rules distinguish them.

    Raises:
        TooEntangled: The rules overlap in too many ways.
    """
    values = {name: _values(kind, _conditions(decision, name)) for name, kind in decision.variables.items()}
    boxes = [_box(rule.when, values) for rule in decision.rules]
    patience = iter(range(MAX_BOXES))
    return tuple(index for index, box in enumerate(boxes) if not _remaining_boxes(box, boxes[:index], patience))


def _remaining_boxes(box: Box, others: list[Box], patience: Iterator[int]) -> list[Box]:
    """Return what is left of a box without the others."""
    left = [box]
    for other in others:
        pieces: list[Box] = []
        for one in left:
            if next(patience, None) is None:
                raise TooManyCombinations
            pieces += _without(one, other)
        left = pieces
    return left


def _conditions(decision: GroundedDecision, name: str) -> list[Condition]:
    return [rule.when[name] for rule in decision.rules if name in rule.when]


def _values(kind: ValueKind, conditions: list[Condition]) -> frozenset[Value]:
    """Return values of which each stands for all that the conditions treat alike."""
    if kind.enum or kind.type == "boolean":
        return frozenset(kind.enum or (False, True))
    low = -inf if kind.minimum is None else kind.minimum
    high = inf if kind.maximum is None else kind.maximum
    named = {number for condition in conditions for number in _numbers(condition) if low <= number <= high}
    points = sorted(named | {low, high})
    between = (_number_between(kind, *pair) for pair in pairwise(points))
    return frozenset([*points, *(number for number in between if number is not None)])


def _numbers(condition: Condition) -> Iterator[Number]:
    for number in (condition.at_least, condition.at_most, *condition.any_of):
        if isinstance(number, (int, float)):
            yield number


def _number_between(kind: ValueKind, low: Number, high: Number) -> Number | None:
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


def _kind_problem(kind: ValueKind) -> str:
    has_bounds = kind.minimum is not None or kind.maximum is not None
    if bool(kind.enum) == (kind.type is not None):
        return 'give either enum = [...], or type = "boolean", "integer" or "number"; free text decides nothing'
    if len(set(kind.enum)) < len(kind.enum):
        return "enum: a word stands there twice; leave it out"
    if kind.enum or kind.type == "boolean":
        return "minimum and maximum belong to numbers; leave them out" if has_bounds else ""
    return _bounds_problem(kind)


def _bounds_problem(kind: ValueKind) -> str:
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


def _condition_problem(condition: Condition, kind: ValueKind) -> str:
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
        for index in unreachable_rules(decision):
            what = f"rules.{index} ({decision.rule_name(index)})"
            yield f"{what}: it never decides, the rules before it take all its cases; move it up, or leave it out"
    except TooManyCombinations:
        yield "rules: they overlap in too many ways to be checked; use fewer conditions, or make two decisions of it"


def _type(value: Value) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, (int, float)) else "a word"
