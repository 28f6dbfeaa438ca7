"""Delegation: a run hands a part of its task to another agent."""

import re
from hashlib import sha256
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from orga.workflows.types.record import CheckedInput, Record, replace_fields


class Delegate(CheckedInput):
    """An agent that another may delegate to. In `orga.toml` its name alone, or a table that narrows it."""

    agent: str = Field(min_length=1, max_length=200)
    """Its name."""
    tools: tuple[str, ...] | None = None
    """The most that it may use of its own tools; null for all of them."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"agent": value} if isinstance(value, str) else value


class Ceiling(CheckedInput):
    """What a run may do at most, whatever its agent's config says. It only ever narrows on the way down."""

    tools: tuple[str, ...] | None = None
    max_iterations: int | None = Field(default=None, ge=0)
    max_total_tokens: int | None = Field(default=None, ge=0)
    max_cost_usd: float | None = Field(default=None, ge=0)
    timeout_s: float | None = Field(default=None, ge=0)
    max_model_calls: int | None = Field(default=None, ge=0)
    max_tool_calls: int | None = Field(default=None, ge=0)
    max_delegation_depth: int | None = Field(default=None, ge=0)
    tier: Literal["local"] | None = None
    """The tier that the run that delegates is bound to."""

    def with_tools(self, tools: tuple[str, ...]) -> Self:
        """Return the ceiling with the most that may be used."""
        return replace_fields(self, {"tools": tools})


class DelegateSpec(Record):
    """A delegate as a run knows it: recorded in its setup."""

    agent: str
    description: str = ""
    tools: tuple[str, ...] | None = None


class Child(Record):
    """A delegated run in flight, or one that waits for its turn."""

    workflow_id: str
    agent: str
    task: str
    """The beginning of it, for people."""
    ceiling: Ceiling | None = None
    """What is reserved for it; null until its turn has come."""
    held: bool = False
    """Whether a person holds it up."""

    def with_ceiling(self, ceiling: Ceiling) -> Self:
        """Return the delegate with its share."""
        return replace_fields(self, {"ceiling": ceiling})

    def with_held(self, held: bool) -> Self:
        """Return the delegate as a person holds it up, or no longer does."""
        return replace_fields(self, {"held": held})


MAX_ID_CHARS = 900
"""Of a parent's id in that of its delegates; the server takes 1,000."""

_ACTIVITY_ID_SUFFIX = re.compile(r"\d+\.\d+(?:\.[a-z]\d+)*$")


def child_id(workflow_id: str, activity_id: str) -> str:
    """Return the workflow id of the run that carries out the `delegate` call at a place.

    A place is `<iteration>.<index>`, and `.r1`, `.f0`, `.q3` behind it where the call is made again.
    """
    parent = workflow_id if len(workflow_id.encode()) <= MAX_ID_CHARS else sha256(workflow_id.encode()).hexdigest()
    return f"{parent}.{activity_id}"


def delegate_activity_id(child: str) -> str:
    """Return the place of the call that a delegated run carries out."""
    found = _ACTIVITY_ID_SUFFIX.search(child)
    return found.group() if found else ""


def delegate_arguments(arguments: dict[str, Any]) -> tuple[str, str]:
    """Return the target and the task of a `delegate` call; of one that does not fit its schema, nobody's."""
    target, task = arguments.get("agent"), arguments.get("task")
    return target if isinstance(target, str) else "", task if isinstance(task, str) else ""
