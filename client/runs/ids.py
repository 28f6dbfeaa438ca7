"""Ids of runs, and the types of their results and statuses, by kind of run."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.service import RPCError

from orga.client.errors import OrgaError
from orga.workflows.types.json_text import as_object
from orga.workflows.types.names import TERMINATION
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import AgentResult, AgentStatus

MAX_ID_BYTES = 1_000
"""The server refuses a longer id, but the client does not receive that error."""


DERIVED = 5
"""The version of UUIDs in ids that follow from a request, so that a repeated one finds its run."""


def made_version(run_id: str) -> int | None:
    """Return the version of the UUID in an id that `orga` has made, or None for an id that somebody chose."""
    kind, _, rest = run_id.partition("-")
    try:
        made = UUID(rest)
    except ValueError:
        return None
    return made.version if kind in {"agent", "goal", "session", "run"} and str(made) == rest else None


def refuse_derived(chosen: str | None) -> None:
    """Raise InvalidInput for a chosen id that belongs to a request. Its sender would get the run of somebody else."""
    if chosen is not None and made_version(chosen) == DERIVED:
        raise InvalidInput(f"id: {chosen!r} has the form of ids that follow from requests. Choose another id")


def reuse_policy(*, again: bool = False) -> WorkflowIDReusePolicy:
    """Return the policy for the id of an ended run: a new run may use it only with `again`."""
    return WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE


async def id_taken_error(
    client: Client, workflow_id: str, again: str = "pass --again to start a new run with it"
) -> OrgaError:
    """Return the error for an id that is in use. If its run has ended, `again` states how to use the id again."""
    try:
        found = await client.get_workflow_handle(workflow_id).describe()
    except RPCError:  # the run was deleted in the meantime
        return OrgaError(f"a run {workflow_id!r} already exists; choose another id")
    if found.status == WorkflowExecutionStatus.RUNNING:
        return OrgaError(f"run {workflow_id!r} is live already; attach to it, or choose another id")
    state = found.status.name.lower() if found.status else "ended"
    how = found.typed_search_attributes.get(TERMINATION) or state
    when = f" at {found.close_time.astimezone():%Y-%m-%d %H:%M:%S}" if found.close_time else ""
    return OrgaError(f"run {workflow_id!r} has ended{when} ({how}) and keeps its id; choose another id, or {again}")


class RunKind(NamedTuple):
    """The types of a run's result and status."""

    result: type[AgentResult]
    status: type[AgentStatus]


def _agent_kind() -> RunKind:
    return RunKind(AgentResult, AgentStatus)


def _goal_kind() -> RunKind:
    from orga.workflows.types.goals.goal_result import GoalResult, GoalStatus

    return RunKind(GoalResult, GoalStatus)


def _session_kind() -> RunKind:
    from orga.workflows.types.sessions.session_result import SessionResult, SessionStatus

    return RunKind(SessionResult, SessionStatus)


_KINDS: dict[str, Callable[[], RunKind]] = {"goal": _goal_kind, "session": _session_kind}


def kind_of(answer: Any) -> RunKind:
    """Return the kind of the run that returned this result or status. Without a `kind` it is an agent's."""
    kind = as_object(answer).get("kind")
    return _KINDS.get(kind, _agent_kind)() if isinstance(kind, str) else _agent_kind()
