"""Reads the results of runs and how they ended, and returns the types that results and statuses have."""

from contextlib import suppress
from typing import Any, NamedTuple

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from orga.client.history.values import readable
from orga.workflows.types.json_text import as_object
from orga.workflows.types.names import TERMINATION
from orga.workflows.types.status import AgentResult, AgentStatus


class RunKind(NamedTuple):
    """The types of a run's result and status."""

    result: type[AgentResult]
    status: type[AgentStatus]


def kind_of(answer: Any) -> RunKind:
    """Return the kind of the run that returned this result or status. Rare types are imported only if needed."""
    match as_object(answer).get("kind"):
        case "goal":
            from orga.workflows.types.goals.pursuit import GoalResult, GoalStatus

            return RunKind(GoalResult, GoalStatus)
        case "session":
            from orga.workflows.types.sessions.session_result import SessionResult, SessionStatus

            return RunKind(SessionResult, SessionStatus)
        case _:
            return RunKind(AgentResult, AgentStatus)


async def read_result(client: Client, run: WorkflowExecution) -> AgentResult | None:
    """Return the result of a run, or None if it is live or ended without one."""
    if run.status != WorkflowExecutionStatus.COMPLETED:
        return None
    ended = readable(await client.get_workflow_handle(run.id, run_id=run.run_id).result(follow_runs=False))
    return kind_of(ended).result.model_validate(ended)


def ending_of(run: WorkflowExecution) -> str:
    """Return how a run ended, as visibility has it."""
    if run.status == WorkflowExecutionStatus.COMPLETED:
        return run.typed_search_attributes.get(TERMINATION) or "completed"
    return run.status.name.lower() if run.status else "unknown"


async def read_ending(client: Client, run: WorkflowExecution) -> str:
    """Return how a run ended.

    A run that was aborted before a worker had prepared it has no search attributes, so its result is read.
    """
    if TERMINATION not in run.typed_search_attributes:
        with suppress(Exception):  # a codec may raise anything
            if (result := await read_result(client, run)) is not None:
                return result.termination.reason
    return ending_of(run)
