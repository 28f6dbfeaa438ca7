"""Delegation: a run hands a part of its task to another agent."""

from typing import Any, cast

from pydantic import Field, model_validator

from workflows.types.record import Border, Record

DELEGATE = "delegate"
"""The tool by which a model delegates; carried out as a child workflow."""

TERMINATE = "terminate"
"""The tool by which a model ends its run: `{"reason": ..., "output": ...}`."""


class Delegate(Border):
    """An agent that another may delegate to. In `orga.toml` its name alone, or a table that narrows it."""

    agent: str = Field(min_length=1, max_length=200)
    tools: tuple[str, ...] | None = None
    """The most that it may use of its own tools; null for all of them."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"agent": value} if isinstance(value, str) else value


class Ceiling(Border):
    """What a run may do at most, whatever its agent's config says. It only ever narrows on the way down."""

    tools: tuple[str, ...] | None = None
    max_iterations: int | None = Field(default=None, ge=0)
    max_total_tokens: int | None = Field(default=None, ge=0)
    max_cost_usd: float | None = Field(default=None, ge=0)
    timeout_s: float | None = Field(default=None, ge=0)
    max_model_calls: int | None = Field(default=None, ge=0)
    max_tool_calls: int | None = Field(default=None, ge=0)


class Lineage(Border):
    """Where a delegated run comes from."""

    parent: str = ""
    """Workflow id of the run that delegated."""
    chain: tuple[str, ...] = ()
    """Agents from the first run down to the parent of this one."""
    ceiling: Ceiling = Ceiling()

    @property
    def depth(self) -> int:
        """How many delegations lead here."""
        return len(self.chain)


class DelegateSpec(Record):
    """A delegate as a run knows it: recorded in its setup."""

    agent: str
    description: str = ""
    tools: tuple[str, ...] | None = None


def delegate_arguments(arguments: dict[str, Any]) -> tuple[str, str]:
    """Return the target and the task of a `delegate` call whose arguments fit its schema."""
    return cast("str", arguments["agent"]), cast("str", arguments["task"])
