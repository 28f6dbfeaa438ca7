"""The two planners of a goal: its model, or its pipeline. This table holds all differences between them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from orga.workflows.decisions.goals import pipelines, plans, pursue
from orga.workflows.types.control import Intervention, Stop
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.recovery import Outcome


class Planner(NamedTuple):
    """The decisions of a goal that depend on its planner."""

    plan: Callable[[GoalState], GoalState | None]
    """Returns the state with its plan, or None if the model has to make one."""
    keep_guidance: Callable[[GoalState, Sequence[Intervention]], GoalState]
    """Returns the state with guidance from people, in addition to the conversation."""
    round: Callable[[GoalState], GoalState]
    calls: Callable[[GoalState], Sequence[ToolCall | None]]
    """Returns the calls of the due steps. None for each that the model has to make."""
    reconsider: Callable[[GoalState], GoalState | None]
    """Returns the state that, because of guidance, decides again. None if the due steps are carried out first."""
    keep_outputs: Callable[[GoalState, Sequence[Outcome]], GoalState]
    """Returns the state with the outputs of the due steps. Called with their outcomes after `with_round_outcomes`."""
    next: Callable[[GoalState], GoalState | None]
    """Returns the state with the next action, or None if the model has to decide."""
    answer: Callable[[GoalState, Stop], str]
    """Returns the final answer, or "" if the model writes it."""


def _leave_to_model(_: GoalState) -> None: ...


def _same_state(state: GoalState, _: object) -> GoalState:
    return state


def _no_answer(_: GoalState, __: Stop) -> str:
    return ""


MODEL_PLANNER = Planner(
    plan=_leave_to_model,
    keep_guidance=_same_state,
    round=pursue.with_round,
    calls=plans.due_step_calls,
    reconsider=pursue.with_round_postponed,
    keep_outputs=_same_state,
    next=pursue.with_decision_by_rules,
    answer=_no_answer,
)

PIPELINE_PLANNER = Planner(
    plan=pipelines.with_pipeline_plan,
    keep_guidance=pipelines.with_pipeline_guidance,
    round=pipelines.with_pipeline_round,
    calls=pipelines.due_pipeline_calls,
    reconsider=_leave_to_model,
    keep_outputs=pipelines.with_round_outputs,
    next=pipelines.with_next_move,
    answer=pipelines.pipeline_answer,
)


def planner_for(state: GoalState) -> Planner:
    return MODEL_PLANNER if pipelines.find_pipeline(state) is None else PIPELINE_PLANNER
