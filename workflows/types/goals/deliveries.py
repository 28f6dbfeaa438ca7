"""Channels for a goal's final answer, in addition to its result. The operator configures them, and goals name them."""

from shlex import quote
from typing import Annotated, Literal, Self

from pydantic import Field

from orga.workflows.types.knowledge import Behalf
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.text import can_be_typed

DeliveryKind = Literal["file", "memory", "webhook", "telegram", "discord", "slack", "email"]

MEMORY: DeliveryKind = "memory"

DeliveryName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
"""The configured name of a channel. A goal's input gives this name, never an address or a path."""

MAX_DELIVERIES = 10
"""Deliveries of one goal. Each has the answer in the input of its activity."""

MAX_ANSWER_BYTES = 150_000
"""Bytes of JSON of an answer in a delivery. All deliveries begin in one workflow task, which takes 4 MB."""

GOAL_ID = "{goal_id}"
"""The placeholder for the goal's id in the path of a file."""

MAX_ID_CHARS = 100

MAY_HAVE_ARRIVED = "MayHaveArrived"
"""Failure type of an attempt after which the receiver may already have the answer."""


def full_answer_location(goal_id: str) -> str:
    """Return a hint on where to find the whole answer, for receivers who get only its beginning."""
    if can_be_typed(goal_id) and len(goal_id) <= MAX_ID_CHARS:
        return f"the whole: orga attach {quote(goal_id)}"
    return "the whole is the result of the goal"


class Channel(Record):
    """A channel as a run's setup records it. Only the worker knows its address and secrets."""

    name: str
    kind: DeliveryKind
    default: bool = False
    """True if it gets the answers of goals that name no channel."""


class DeliveryRequest(Record):
    """Input of `deliver`: one answer for one channel, the same in every attempt."""

    name: str
    key: str
    """Key of this delivery. A receiver that remembers keys accepts it once."""
    agent: str
    goal: str
    reason: str
    detail: str = ""
    confidence: float
    text: str
    """The final answer, or the findings so far if the goal ended early."""
    size: int
    """Characters of the whole answer. `text` may be only its beginning."""
    behalf: Behalf | None = None
    """The owner of the answer and the goal's taint. Set only if the answer is stored as knowledge."""

    def with_behalf(self, behalf: Behalf) -> Self:
        return replace_fields(self, {"behalf": behalf})


class Delivered(Record):
    """The outcome of a delivery, as the goal's result shows it."""

    name: str
    kind: DeliveryKind | Literal["unknown"]
    """`unknown` if the goal ended before its worker had reported its channels."""
    status: Literal["delivered", "failed"]
    error: str = ""
    attempts: int = 0
    """Attempts whose end is known."""
