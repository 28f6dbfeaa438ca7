"""Who says what a goal does: its model, or the pipeline of its configuration. What differs between them stands here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from orga.workflows.decisions.goals import plans, pursue
from orga.workflows.decisions.goals.pipelines import course
from orga.workflows.decisions.goals.pipelines.course import with_next_move
from orga.workflows.decisions.goals.pipelines.plans import find_pipeline
from orga.workflows.types.control import Intervention, Stop
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.recovery import Outcome


class Planner(NamedTuple):
    """The decisions of a goal that depend on who plans it."""

    plan: Callable[[GoalState], GoalState | None]
    """The state with its plan; None where the model is asked for one."""
    heard: Callable[[GoalState, Sequence[Intervention]], GoalState]
    """What is kept of what people said, beside what the conversation holds."""
    round: Callable[[GoalState], GoalState]
    """The state with the steps that are done next."""
    calls: Callable[[GoalState], Sequence[ToolCall | None]]
    """The calls of these steps; None for each that the model has to make."""
    guided: Callable[[GoalState], GoalState | None]
    """The state that decides anew ahead of these steps, since people said something; None where they are done."""
    brought: Callable[[GoalState, Sequence[Outcome]], GoalState]
    """The state with what is kept of these steps, in their order, behind `with_executed`."""
    next: Callable[[GoalState], GoalState | None]
    """The state with what is next; None where the model is asked."""
    answer: Callable[[GoalState, Stop], str]
    """The final answer; "" where the model writes it."""


def _no_calls(_: GoalState) -> None:
    """Leave it to the model."""


def _unchanged(state: GoalState, _: object) -> GoalState:
    return state


def _no_answer(_: GoalState, __: Stop) -> str:
    return ""


MODEL_PLANNER = Planner(
    plan=_no_calls,
    heard=_unchanged,
    round=pursue.with_round,
    calls=plans.due_step_calls,
    guided=pursue.with_round_postponed,
    brought=_unchanged,
    next=pursue.with_decision_by_rules,
    answer=_no_answer,
)

PIPELINE_PLANNER = Planner(
    plan=course.with_pipeline_plan,
    heard=course.with_pipeline_guidance,
    round=course.with_pipeline_round,
    calls=course.due_pipeline_calls,
    guided=_no_calls,
    brought=course.with_round_outputs,
    next=with_next_move,
    answer=course.pipeline_answer,
)


def planner_for(state: GoalState) -> Planner:
    """Return who plans this goal."""
    return MODEL_PLANNER if find_pipeline(state) is None else PIPELINE_PLANNER
