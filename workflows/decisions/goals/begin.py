"""The first state of a goal: from what its starter sent, or from what the run before it carried."""

from datetime import datetime
from typing import Any

from orga.workflows.decisions.begin import begun, carried_state
from orga.workflows.decisions.goals.fork import awaiting_goal
from orga.workflows.types.goals.input import GoalInput, parse_goal
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.past import is_fork, parse_goal_fork


def pursued(goal: GoalInput, origin: str, now: datetime) -> GoalState:
    """Return the state of a new goal: the goal is the first message."""
    agent = begun(goal.for_agent(), origin, now)
    given: dict[str, Any] = {name: getattr(agent, name) for name in agent.model_fields_set}
    if goal.deliver is not None:
        given["deliver"] = goal.deliver
    if goal.pipeline is not None:
        given["pipeline"] = goal.pipeline
    if goal.inputs is not None:
        given["inputs"] = goal.inputs
    return GoalState(**given, goal_config=goal.config)


def first_goal(raw: object, given: object, before: str | None, origin: str, now: datetime) -> GoalState:
    """Return the state to start from; one that is given counts where the run `before` carried it.

    Raises:
        InvalidInput: With every problem, each naming its key.
        NewerState: It was carried by a run of a version that knows more.
    """
    if given is not None and before:
        return carried_state(GoalState, given, before)
    if is_fork(raw):
        return awaiting_goal(parse_goal_fork(raw), origin, now)
    return pursued(parse_goal(raw), origin, now)
