"""The kinds of run, by the word that their answers bear: what a result and a status of each are read as.

What a goal or a session answers with is loaded for the first that does: most commands meet none.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from orga.workflows.types.status import AgentResult, AgentStatus


class RunKind(NamedTuple):
    """What a run of a kind answers with."""

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
    """Return the kind of the run that answered this; an agent's run says nothing of it."""
    said = cast("dict[str, Any]", answer).get("kind") if isinstance(answer, dict) else None
    return _KINDS.get(said, _agent_kind)() if isinstance(said, str) else _agent_kind()
