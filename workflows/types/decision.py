"""A decision that text cannot settle: the model proposes typed fields, the starter gives facts, rules do the rest."""

from pydantic import Field

from workflows.types.decision_values import Condition, Fact, Kind, Value, VariableName
from workflows.types.record import Border, Record

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
    """A decision with its grounds: what the result, the journal and the model are told."""

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
