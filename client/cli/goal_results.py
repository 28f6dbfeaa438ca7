"""Results and states of goals among those of runs; what only goals answer with is loaded for them alone."""

from typing import TYPE_CHECKING

from orga.workflows.types.sessions.result import TurnResult
from orga.workflows.types.status import AgentResult, AgentStatus

if TYPE_CHECKING:
    from orga.workflows.types.goals.result import GoalResult, GoalStatus


def goal_result(ended: AgentResult | TurnResult) -> "GoalResult | None":
    """Return the result as a goal's; None of any other run."""
    if getattr(ended, "kind", "") != "goal":
        return None
    from orga.workflows.types.goals.result import GoalResult

    return ended if isinstance(ended, GoalResult) else None


def goal_status(status: AgentStatus) -> "GoalStatus | None":
    """Return the state as a goal's; None of any other run."""
    if getattr(status, "kind", "") != "goal":
        return None
    from orga.workflows.types.goals.result import GoalStatus

    return status if isinstance(status, GoalStatus) else None
