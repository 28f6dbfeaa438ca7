"""The kinds of run, by the word that their answers bear: what a result and a status of each are read as."""

from typing import Any, NamedTuple, cast

from orga.workflows.types.goals.result import GOAL, GoalResult, GoalStatus
from orga.workflows.types.status import AgentResult, AgentStatus


class Kind(NamedTuple):
    """What a run of a kind answers with."""

    result: type[AgentResult]
    status: type[AgentStatus]


_AGENT = Kind(AgentResult, AgentStatus)
_KINDS = {GOAL: Kind(GoalResult, GoalStatus)}


def kind_of(answer: Any) -> Kind:
    """Return the kind of the run that answered this; an agent's run says nothing of it."""
    said = cast("dict[str, Any]", answer).get("kind") if isinstance(answer, dict) else None
    return _KINDS.get(said, _AGENT) if isinstance(said, str) else _AGENT
