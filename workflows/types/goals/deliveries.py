"""Where the final answer of a goal goes beside its result: channels that the operator configured, known by name."""

from shlex import quote
from typing import Annotated, Literal, Self

from pydantic import Field

from orga.workflows.types.knowledge import Behalf
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.text import can_be_typed

DeliveryKind = Literal["file", "memory", "webhook", "telegram", "discord", "slack", "email"]

MEMORY: DeliveryKind = "memory"

DeliveryName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
"""As configured; a starter names it, and never an address or a path."""

MAX_DELIVERIES = 10
"""Of one goal: each has the answer in the input of its activity."""

MAX_ANSWER_BYTES = 150_000
"""Of JSON that an answer may have there: all deliveries begin in one workflow task, which takes 4 MB."""


GOAL_ID = "{goal_id}"
"""Stands for the goal's id in the path of a file."""

MAX_ID_CHARS = 100


def full_answer_location(goal_id: str) -> str:
    """Return where all of an answer is, for who gets its beginning."""
    if can_be_typed(goal_id) and len(goal_id) <= MAX_ID_CHARS:
        return f"the whole: orga attach {quote(goal_id)}"
    return "the whole is the result of the goal"


class Channel(Record):
    """A channel of the worker, as the setup of a run tells it: what it needs is known to the worker alone."""

    name: str
    kind: DeliveryKind
    default: bool = False
    """Whether it gets the answers of goals that name none."""


class DeliveryRequest(Record):
    """Input of `deliver`: one answer for one channel, the same in every attempt."""

    name: str
    """Of the channel."""
    key: str
    """Of this delivery: a receiver that remembers keys takes it once."""
    agent: str
    goal: str
    """On one line."""
    reason: str
    """How the goal ended."""
    detail: str = ""
    confidence: float
    text: str
    """The final answer, or what was found until the goal ended."""
    size: int
    """Characters of the whole answer, of which `text` may be the beginning."""
    behalf: Behalf | None = None
    """Whose it is, and what the goal had read; set only where it becomes knowledge."""

    def with_behalf(self, behalf: Behalf) -> Self:
        """Return the request to a store of knowledge."""
        return replace_fields(self, {"behalf": behalf})


class Delivered(Record):
    """What became of a delivery, as the result of the goal tells it."""

    name: str
    kind: DeliveryKind | Literal["unknown"]
    """`unknown` where the goal ended before its worker had told of its channels."""
    status: Literal["delivered", "failed"]
    error: str = ""
    attempts: int = 0
    """Those that said how they ended."""
