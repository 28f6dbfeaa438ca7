"""Tell results and states of goals from those of other runs. The types of goals are imported only for goals."""

from typing import TYPE_CHECKING

from orga.workflows.types.sessions.result import TurnResult
from orga.workflows.types.status import AgentResult, AgentStatus

if TYPE_CHECKING:
    from orga.workflows.types.goals.result import GoalResult, GoalStatus


def goal_result(ended: AgentResult | TurnResult) -> "GoalResult | None":
    """Return the result typed as a goal's, or None if it belongs to another kind of run."""
    if getattr(ended, "kind", "") != "goal":
        return None
    from orga.workflows.types.goals.result import GoalResult

    return ended if isinstance(ended, GoalResult) else None


def goal_status(status: AgentStatus) -> "GoalStatus | None":
    """Return the state typed as a goal's, or None if it belongs to another kind of run."""
    if getattr(status, "kind", "") != "goal":
        return None
    from orga.workflows.types.goals.result import GoalStatus

    return status if isinstance(status, GoalStatus) else None
