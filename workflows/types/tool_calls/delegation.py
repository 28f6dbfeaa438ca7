"""Delegation: a run gives a part of its task to another agent."""

import re
from hashlib import sha256
from typing import Any, Self

from pydantic import Field, model_validator

from orga.workflows.types.json_text import as_text
from orga.workflows.types.limits import Ceiling
from orga.workflows.types.record import CheckedInput, Record, replace_fields


class Delegate(CheckedInput):
    """An agent that another may delegate to. `orga.toml` has its name, or a table that also narrows its tools."""

    agent: str = Field(min_length=1, max_length=200)
    """The agent's name."""
    tools: tuple[str, ...] | None = None
    """The tools of its config that it may use. Null for all of them."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"agent": value} if isinstance(value, str) else value


class DelegateSpec(Record):
    """A delegate as a run's setup records it."""

    agent: str
    description: str = ""
    tools: tuple[str, ...] | None = None


class Child(Record):
    """A delegated run that is running or waits for its turn."""

    workflow_id: str
    agent: str
    task: str
    """The beginning of its task, for people."""
    ceiling: Ceiling | None = None
    """Its reserved share of the budgets. None while it waits for its turn."""
    held: bool = False
    """True if a person holds it up."""

    def with_ceiling(self, ceiling: Ceiling) -> Self:
        return replace_fields(self, {"ceiling": ceiling})

    def with_held(self, held: bool) -> Self:
        return replace_fields(self, {"held": held})


MAX_PARENT_ID_BYTES = 900
"""Bytes of a parent's id in the id of its delegates. The server takes 1,000."""

_ACTIVITY_ID_SUFFIX = re.compile(r"\d+\.\d+(?:\.[a-z]\d+)*$")


def child_id(workflow_id: str, activity_id: str) -> str:
    """Return the workflow id of the run that carries out a `delegate` call.

    The call's id is `<iteration>.<index>`. A retry, fallback or requeue adds a suffix such as `.r1`, `.f0` or `.q3`.
    """
    is_short = len(workflow_id.encode()) <= MAX_PARENT_ID_BYTES
    parent = workflow_id if is_short else sha256(workflow_id.encode()).hexdigest()
    return f"{parent}.{activity_id}"


def delegate_activity_id(child: str) -> str:
    """Return the activity id of the call that a delegated run carries out, or ""."""
    suffix = _ACTIVITY_ID_SUFFIX.search(child)
    return suffix.group() if suffix else ""


def delegate_arguments(arguments: dict[str, Any]) -> tuple[str, str]:
    """Return the target and the task of a `delegate` call. An argument that does not fit its schema is ""."""
    target, task = arguments.get("agent"), arguments.get("task")
    return as_text(target), as_text(task)
