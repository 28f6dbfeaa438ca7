"""The kinds of run, by the word that their answers bear: what a result and a status of each are read as.

What a goal or a session answers with is loaded for the first that does: most commands meet none.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from orga.workflows.types.status import AgentResult, AgentStatus


class Kind(NamedTuple):
    """What a run of a kind answers with."""

    result: type[AgentResult]
    status: type[AgentStatus]


def _agent() -> Kind:
    return Kind(AgentResult, AgentStatus)


def _goal() -> Kind:
    from orga.workflows.types.goals.result import GoalResult, GoalStatus

    return Kind(GoalResult, GoalStatus)


def _session() -> Kind:
    from orga.workflows.types.sessions.result import SessionResult, SessionStatus

    return Kind(SessionResult, SessionStatus)


_KINDS: dict[str, Callable[[], Kind]] = {"goal": _goal, "session": _session}


def kind_of(answer: Any) -> Kind:
    """Return the kind of the run that answered this; an agent's run says nothing of it."""
    said = cast("dict[str, Any]", answer).get("kind") if isinstance(answer, dict) else None
    return _KINDS.get(said, _agent)() if isinstance(said, str) else _agent()
