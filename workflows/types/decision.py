"""A decision that text cannot settle: the model proposes typed fields, the starter gives facts, rules do the rest."""

from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from orga.workflows.types.record import Border, Record, replace_fields

Label = Annotated[StrictStr, Field(min_length=1, max_length=100)]
Number = StrictInt | StrictFloat
Value = StrictBool | StrictInt | StrictFloat | Label
VariableName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


class Kind(Border):
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
            case int() | float() if not isinstance(value, bool) and self._holds(value):
                return int(value) if self.type == "integer" else value
            case _:
                raise ValueError(f"{_shown(value)} is not {self.wording}")

    @property
    def wording(self) -> str:
        """What a value has to be, in words."""
        if self.enum:
            return f"one of {', '.join(self.enum)}"
        what = "an integer" if self.type == "integer" else "a number"
        return "true or false" if self.type == "boolean" else f"{what} from {self.minimum} to {self.maximum}"

    def _holds(self, value: Number) -> bool:
        """Return whether a number is within the bounds, both of which have to be there."""
        if self.minimum is None or self.maximum is None or not self.minimum <= value <= self.maximum:
            return False
        return self.type == "number" or (self.type == "integer" and value == int(value))


class Fact(Kind):
    """What the starter of a run says."""

    source: str = Field(pattern=r"^(tenant|trusted_context(\.[^.\s]+)+)$", max_length=300)
    """`trusted_context.customer.tier`, or `tenant`."""


class Condition(Border):
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


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


DECISION_GROUNDED = "DecisionGrounded"
"""The note that tells what was decided, and on which grounds: no activity stands for the call."""

TAINTED = "tainted"
"""A fact that every decision has: whether untrusted content has entered the conversation."""

DEFAULT_RULE = "default"


class Rule(Border):
    """If all conditions hold, this is the outcome."""

    name: str = Field(default="", max_length=100)
    """For journals and grounds; empty: its number, from 1."""
    when: dict[VariableName, Condition]
    then: dict[VariableName, Value]
    """The outcome, by field."""


class GroundedDecision(Border):
    """What is decided, from what, and how."""

    description: str = Field(default="", max_length=2_000)
    """For the model: what is decided, and when."""
    required: bool = False
    """Without it no answer ends the run."""
    revisable: bool = False
    """Whether it may be made again; the last one counts."""
    fields: dict[VariableName, Kind] = Field(default={}, max_length=20)
    """What the model proposes."""
    facts: dict[VariableName, Fact] = Field(default={}, max_length=20)
    rules: tuple[Rule, ...] = Field(default=(), max_length=100)
    """The first whose conditions all hold decides."""
    default: dict[VariableName, Value] = Field(default={}, max_length=20)
    """The outcome where no rule does."""

    @property
    def variables(self) -> dict[str, Kind]:
        """What rules can ask about."""
        return {**self.fields, **self.facts, TAINTED: Kind(type="boolean")}

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
