"""A saga: steps in order, of which those that were done are taken back when a later one fails."""

from typing import Any, Literal, cast

from orga.workflows.types.record import Record

SAGA_ENDED = "SagaEnded"
"""The note that tells how one ended: no activity stands for the call."""

MAX_STEPS = 20

StepKind = Literal["read_only", "compensatable", "final"]
"""What a step leaves behind: nothing, what its compensation takes back, or what cannot be taken back."""


class Action(Record):
    """A call that a saga makes."""

    tool: str
    arguments: dict[str, Any] = {}


class SagaStep(Action):
    """One step."""

    kind: StepKind
    compensation: Action | None = None


class SagaPlan(Record):
    """Arguments of a `saga` call."""

    steps: tuple[SagaStep, ...] = ()


def step_count(arguments: dict[str, Any]) -> int:
    """Return how many steps these arguments propose, whether they are a plan or not."""
    steps = arguments.get("steps")
    return len(cast("list[Any]", steps)) if isinstance(steps, list) else 0
