"""Inputs of runs that share a past: forks and rewinds."""

from typing import Annotated, Any, Self

from pydantic import Field

from orga.workflows.types.goals.goal_input import Deliver, GoalConfig
from orga.workflows.types.input import Instructions, LoopConfig, Name, Task
from orga.workflows.types.record import CheckedInput, Record, check_input, replace_fields


class Fork(CheckedInput):
    """The run whose past is shared, and where that past ends."""

    workflow_id: str = Field(min_length=1, max_length=1_000)
    run_id: str = Field(default="", max_length=100)
    """Empty: the latest run of that id."""
    iteration: int = Field(strict=True, ge=0, le=1_000_000)
    """The last iteration of the shared past. 0 shares only what came before the first iteration."""
    requeue: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(default=(), max_length=1_000)
    """Ids of dead letters of the past. The fork begins by sending them again, with their idempotency keys."""

    def with_run(self, run_id: str) -> Self:
        return replace_fields(self, {"run_id": run_id})


class AnyForkInput(CheckedInput):
    """Input of any fork: `fork`, and the keys that differ from the past."""

    fork: Fork
    task: Task | None = None
    """The fork's task. It follows the conversation so far, or replaces a task that no model has seen yet. A goal takes
    it as guidance.
    """
    agent: Name | None = None
    model: Name | None = None
    trusted_context: dict[str, Any] = {}

    def with_run(self, run_id: str) -> Self:
        return replace_fields(self, {"fork": self.fork.with_run(run_id)})

    @property
    def changes(self) -> dict[str, Any]:
        """The keys of the input that change in the fork. Keys of `config` are changed one by one."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"fork", "task"})


class ForkInput(AnyForkInput):
    """Input of `AgentWorkflow` for a fork."""

    instructions: Instructions = None
    tools: tuple[Name, ...] | None = None
    config: LoopConfig = LoopConfig()
    output_schema: dict[str, Any] | None = None


class GoalForkInput(AnyForkInput):
    """Input of `GoalWorkflow` for a fork."""

    skills: tuple[Name, ...] | None = None
    config: GoalConfig = GoalConfig()
    deliver: Deliver = None


class ForkedFrom(Record):
    """The run whose past this one shares."""

    workflow_id: str
    run_id: str
    iteration: int


def parse_fork(raw: object) -> ForkInput:
    """Raise InvalidInput, which lists every problem with its key."""
    return check_input(ForkInput, raw)


def parse_goal_fork(raw: object) -> GoalForkInput:
    """Raise InvalidInput, which lists every problem with its key."""
    return check_input(GoalForkInput, raw)
