"""Runs that share a past, as they are started or set back: forks and rewinds."""

from typing import Annotated, Any, Self, cast

from pydantic import Field

from orga.workflows.types.input import Instructions, LoopConfig, Name, Task
from orga.workflows.types.record import Border, Record, checked, replace_fields


class Fork(Border):
    """The run whose past is shared, and where that past ends."""

    workflow_id: str = Field(min_length=1, max_length=1_000)
    run_id: str = Field(default="", max_length=100)
    """Empty: the latest run of that id."""
    iteration: int = Field(strict=True, ge=0, le=1_000_000)
    """The last one of the past; 0 shares no more than what was prepared."""
    requeue: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(default=(), max_length=1_000)
    """Dead letters of the past that the fork sends again first, under the keys that they had."""

    def with_run(self, run_id: str) -> Self:
        """Return the past of just this run."""
        return replace_fields(self, {"run_id": run_id})


class ForkInput(Border):
    """Input of `AgentWorkflow` for a fork: of the other keys only those that are other than in the past."""

    fork: Fork
    task: Task | None = None
    """What the fork shall do, asked behind the conversation so far."""
    agent: Name | None = None
    model: Name | None = None
    instructions: Instructions = None
    tools: tuple[Name, ...] | None = None
    config: LoopConfig = LoopConfig()
    trusted_context: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None

    def with_run(self, run_id: str) -> Self:
        """Return the input of a fork of just this run."""
        return replace_fields(self, {"fork": self.fork.with_run(run_id)})

    @property
    def changes(self) -> dict[str, Any]:
        """The keys of the input that are other in the fork; those of `config` one by one."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"fork", "task"})


class ForkedFrom(Record):
    """The run whose past this one shares."""

    workflow_id: str
    run_id: str
    iteration: int


def is_fork(raw: object) -> bool:
    """Return whether an input asks for a fork."""
    return isinstance(raw, dict) and cast("dict[str, Any]", raw).get("fork") is not None


def parse_fork(raw: object) -> ForkInput:
    """Check what a client sent.

    Raises:
        InvalidInput: With every problem, each naming its key.
    """
    return checked(ForkInput, raw)
