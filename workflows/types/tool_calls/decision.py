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
    """The allowed values of a field or a fact: some words, the numbers within bounds, or true and false."""

    enum: tuple[Label, ...] = Field(default=(), max_length=100)
    """The allowed words."""
    type: Literal["boolean", "integer", "number"] | None = None
    """The type of values that are not words. Leave it out if there is an `enum`."""
    minimum: Number | None = None
    """The smallest allowed number."""
    maximum: Number | None = None
    """The largest allowed number."""
    description: str = Field(default="", max_length=1_000)
    """A description for the model."""

    def fit_value(self, value: object) -> Value:
        """Return the value in this kind's type. 3.0 counts as an integer. Raise ValueError if it is not allowed."""
        match value:
            case str() if value in self.enum:
                return value
            case bool() if self.type == "boolean":
                return value
            case int() | float() if not isinstance(value, bool) and self._is_within_bounds(value):
                return int(value) if self.type == "integer" else value
            case _:
                raise ValueError(f"{_shown_value(value)} is not {self.expected_value_text}")

    @property
    def expected_value_text(self) -> str:
        if self.enum:
            return f"one of {', '.join(self.enum)}"
        what = "an integer" if self.type == "integer" else "a number"
        return "true or false" if self.type == "boolean" else f"{what} from {self.minimum} to {self.maximum}"

    def _is_within_bounds(self, value: Number) -> bool:
        if self.minimum is None or self.maximum is None or not self.minimum <= value <= self.maximum:
            return False
        return self.type == "number" or (self.type == "integer" and value == int(value))


class Fact(ValueKind):
    """A fact from the starter of a run."""

    source: str = Field(pattern=r"^(tenant|trusted_context(\.[^.\s]+)+)$", max_length=300)
    """`trusted_context.customer.tier`, or `tenant`."""


class Condition(CheckedInput):
    """A rule's condition on one field or fact. `orga.toml` has a value, a list of values, or a table of bounds."""

    any_of: tuple[Value, ...] = ()
    """The values that satisfy it. In place of the table, they can be given alone, as one value or a list."""
    at_least: Number | None = None
    """The smallest number that satisfies it."""
    at_most: Number | None = None
    """The largest number that satisfies it."""

    @model_validator(mode="before")
    @classmethod
    def _from_value(cls, value: Any) -> Any:
        if isinstance(value, (bool, int, float, str)):
            return {"any_of": (value,)}
        return {"any_of": cast("list[Any]", value)} if isinstance(value, (list, tuple)) else value

    def is_met_by(self, value: Value) -> bool:
        """Return True if the value is in `any_of`, or is a number within the bounds."""
        if self.any_of:  # true equals 1 in Python
            return any(value == met and isinstance(value, bool) == isinstance(met, bool) for met in self.any_of)
        if isinstance(value, str):
            return False
        low, high = self.at_least, self.at_most
        return (low is None or low <= value) and (high is None or value <= high)


def _shown_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


DECISION_GROUNDED = "DecisionGrounded"
"""The journal event of a decision with its grounds. A `decide` call has no activity that could show them."""

TAINTED = "tainted"
"""A fact of every decision. It is true if untrusted content has entered the conversation."""

DEFAULT_RULE = "default"


class Rule(CheckedInput):
    """If all conditions in `when` hold, `then` is the outcome."""

    name: str = Field(default="", max_length=100)
    """The rule's name in `Decided.rule`. Empty: its number, from 1."""
    when: dict[VariableName, Condition]
    then: dict[VariableName, Value]
    """The outcome, by field."""


class GroundedDecision(CheckedInput):
    """A decision: its fields, its facts, and its rules."""

    description: str = Field(default="", max_length=2_000)
    """A description for the model: what the decision is about, and when to make it."""
    required: bool = False
    """True if the run cannot end with an answer before this decision is made."""
    revisable: bool = False
    """True if it may be made again. The last one counts."""
    fields: dict[VariableName, ValueKind] = Field(default={}, max_length=20)
    """Fields that the model proposes."""
    facts: dict[VariableName, Fact] = Field(default={}, max_length=20)
    rules: tuple[Rule, ...] = Field(default=(), max_length=100)
    """The first rule whose conditions all hold decides."""
    default: dict[VariableName, Value] = Field(default={}, max_length=20)
    """The outcome if no rule decides."""

    @property
    def variables(self) -> dict[str, ValueKind]:
        """The names that rules can use."""
        return {**self.fields, **self.facts, TAINTED: ValueKind(type="boolean")}

    def rule_name(self, index: int) -> str:
        return self.rules[index].name or str(index + 1)


class Ground(Record):
    """A fact as a decision used it."""

    value: Value
    source: str
    """The fact's source. For `tainted`: the tools whose untrusted content has entered the conversation."""


class Decided(Record):
    """A decision with its grounds, as the result, the journal and the model see it."""

    outcome: dict[str, Value]
    rule: str
    """The rule that decided: its name, else its number from 1, or `default`."""
    fields: dict[str, Value]
    facts: dict[str, Ground]
    declaration: str
    """`sha256:` and 64 hex characters. Identifies the exact text of the rules."""
    iteration: int
    rationale: str = ""
    """The model's own reasons, cut. Nothing depends on them."""
    revision: int = 0
    """The number of times that it was made before."""

    def with_rationale(self, rationale: str) -> Self:
        return replace_fields(self, {"rationale": rationale})

    def with_revision(self, revision: int) -> Self:
        return replace_fields(self, {"revision": revision})


Box = dict[str, frozenset[Value]]
"""A set of cases: every combination of the values of its variables."""

MAX_BOXES = 20_000
"""Boxes that are examined at most. Their number can grow exponentially if rules overlap in many ways."""


class TooManyCombinations(ValueError):
    """The rules overlap in too many ways to find out if each one can decide."""


def unreachable_rules(decision: GroundedDecision) -> tuple[int, ...]:
    """Return the indexes of the rules that never decide. Raise TooManyCombinations if they overlap in too many ways.

    Numbers are tested at the bounds in the rules, and between them.
    """
    values = {name: _distinct_values(kind, _conditions(decision, name)) for name, kind in decision.variables.items()}
    boxes = [_rule_box(rule.when, values) for rule in decision.rules]
    allowance = iter(range(MAX_BOXES))
    return tuple(index for index, box in enumerate(boxes) if not _remaining_boxes(box, boxes[:index], allowance))


def _remaining_boxes(box: Box, others: list[Box], allowance: Iterator[int]) -> list[Box]:
    """Return the parts of a box that none of the others covers. Each examined box takes one item of `allowance`."""
    remaining = [box]
    for other in others:
        pieces: list[Box] = []
        for piece in remaining:
            if next(allowance, None) is None:
                raise TooManyCombinations
            pieces += _box_without(piece, other)
        remaining = pieces
    return remaining


def _conditions(decision: GroundedDecision, name: str) -> list[Condition]:
    return [rule.when[name] for rule in decision.rules if name in rule.when]


def _distinct_values(kind: ValueKind, conditions: list[Condition]) -> frozenset[Value]:
    """Return the values to test: at least one from each range of values that satisfy the same conditions."""
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
    number = low + 1 if kind.type == "integer" else low + (high - low) / 2
    return number if low < number < high else None


def _rule_box(when: Mapping[str, Condition], values: Mapping[str, frozenset[Value]]) -> Box:
    """Return the cases in which all conditions of a rule hold."""
    box = dict(values)
    for name, condition in when.items():
        box[name] = frozenset(value for value in values[name] if condition.is_met_by(value))
    return box


def _box_without(box: Box, other: Box) -> Iterator[Box]:
    """Yield the parts of a box that are not in the other one. They do not overlap.

    For each variable in turn, the cases outside the other box are split off. The cases inside it are split further.
    """
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
"""Many JSON readers round larger integers."""


class CheckedDecision(GroundedDecision):
    """`[agents.NAME.decisions.NAME]`.

    A history holds a plain `GroundedDecision`, so that later checks cannot make it unreadable.
    """

    @model_validator(mode="after")
    def _is_sound(self) -> "CheckedDecision":
        problems = [*_kind_problems(self), *_rule_problems(self)]
        if not problems:
            problems = list(_unreachable_rule_problems(self))
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _kind_problems(decision: GroundedDecision) -> Iterator[str]:
    if not decision.fields:
        yield "fields: there are none; name at least one that the model proposes"
    for key, kinds in (("fields", decision.fields), ("facts", decision.facts)):
        for name, kind in kinds.items():
            if problem := _kind_problem(kind):
                yield f"{key}.{name}: {problem}"
            if name == TAINTED:
                yield f"{key}.{name}: every decision has this fact by itself; leave it out, or rename yours"
    for name in decision.fields.keys() & decision.facts.keys():
        yield f"facts.{name}: a field has this name, too; rename one of them"
    if not decision.default:
        yield "default: it is missing, or sets nothing; give the outcome if no rule holds"


def _kind_problem(kind: ValueKind) -> str:
    has_bounds = kind.minimum is not None or kind.maximum is not None
    if bool(kind.enum) == (kind.type is not None):
        return 'give either enum = [...], or type = "boolean", "integer" or "number"; free text decides nothing'
    if len(set(kind.enum)) < len(kind.enum):
        return "enum: a word is listed twice; leave one out"
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
        key = f"rules.{index}"
        for name, condition in rule.when.items():
            if name not in variables:
                yield f"{key}.when.{name}: there is no such field or fact; there are: {', '.join(variables)}"
            elif problem := _condition_problem(condition, variables[name]):
                yield f"{key}.when.{name}: {problem}"
        if decision.default:
            yield from _outcome_problems(f"{key}.then", rule.then, decision.default)
    yield from _name_problems(decision.rules)


def _condition_problem(condition: Condition, kind: ValueKind) -> str:
    bounds = [bound for bound in (condition.at_least, condition.at_most) if bound is not None]
    if bool(condition.any_of) == bool(bounds):
        return "it asks for nothing, or for two things; give a value, a list of values, or at_least and at_most"
    if bounds and (kind.enum or kind.type == "boolean"):
        return f"bounds are for numbers, this is {kind.expected_value_text}"
    if len(bounds) == 2 and bounds[0] > bounds[1]:
        return f"at_least {bounds[0]} is above at_most {bounds[1]}, so it never holds"
    for value in (*condition.any_of, *bounds):
        try:
            kind.fit_value(value)
        except ValueError as error:
            return str(error)
    return ""


def _outcome_problems(key: str, then: dict[str, Value], default: dict[str, Value]) -> Iterator[str]:
    for name in default.keys() - then.keys():
        yield f"{key}.{name}: it is missing; each rule sets what the default sets"
    for name in then.keys() - default.keys():
        yield f"{key}.{name}: the default does not set it; add it there, or leave it out"
    for name in then.keys() & default.keys():
        if _type(then[name]) != _type(default[name]):
            yield f"{key}.{name}: {then[name]!r} is {_type(then[name])}, in the default it is {_type(default[name])}"


def _name_problems(rules: tuple[Rule, ...]) -> Iterator[str]:
    names = [rule.name for rule in rules if rule.name]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"rules: two are named {name!r}; rename one of them"
        if name == DEFAULT_RULE or name.isdecimal():
            yield f"rules: {name!r} is no name for a rule, it would be taken for another; rename it"


def _unreachable_rule_problems(decision: GroundedDecision) -> Iterator[str]:
    try:
        for index in unreachable_rules(decision):
            what = f"rules.{index} ({decision.rule_name(index)})"
            yield f"{what}: it never decides, the rules before it take all its cases; move it up, or leave it out"
    except TooManyCombinations:
        yield "rules: they overlap in too many ways to be checked; use fewer conditions, or make two decisions"


def _type(value: Value) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, (int, float)) else "a word"
