"""Results of goals among those of runs; what only goals answer with is loaded for them alone."""

from typing import TYPE_CHECKING

from orga.workflows.types.sessions.result import TurnResult
from orga.workflows.types.status import AgentResult

if TYPE_CHECKING:
    from orga.workflows.types.goals.result import GoalResult


def goal_result(ended: AgentResult | TurnResult) -> "GoalResult | None":
    """Return the result as a goal's; None of any other run."""
    if getattr(ended, "kind", "") != "goal":
        return None
    from orga.workflows.types.goals.result import GoalResult

    return ended if isinstance(ended, GoalResult) else None
