"""The kinds of run, by the `kind` in their answers, with the types of their result and status.

The types of goals and sessions are imported on first use, because most commands need neither.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from orga.workflows.types.status import AgentResult, AgentStatus


class RunKind(NamedTuple):
    """The types of a run's answers."""

    result: type[AgentResult]
    status: type[AgentStatus]


def _agent_kind() -> RunKind:
    return RunKind(AgentResult, AgentStatus)


def _goal_kind() -> RunKind:
    from orga.workflows.types.goals.result import GoalResult, GoalStatus

    return RunKind(GoalResult, GoalStatus)


def _session_kind() -> RunKind:
    from orga.workflows.types.sessions.result import SessionResult, SessionStatus

    return RunKind(SessionResult, SessionStatus)


_KINDS: dict[str, Callable[[], RunKind]] = {"goal": _goal_kind, "session": _session_kind}


def kind_of(answer: Any) -> RunKind:
    """Return the kind of the run that gave this answer. An agent's run names no kind."""
    kind = cast("dict[str, Any]", answer).get("kind") if isinstance(answer, dict) else None
    return _KINDS.get(kind, _agent_kind)() if isinstance(kind, str) else _agent_kind()
