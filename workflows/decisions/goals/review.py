"""A plan before a person: approved as it stands, given anew, or sent back with what is to change."""

from orga.workflows.decisions.goals.change import told_steps, with_steps, with_told
from orga.workflows.decisions.goals.replies import Unusable
from orga.workflows.types.context import Setup
from orga.workflows.types.goals.pursuit import MAX_QUESTION_CHARS, OPERATOR, GoalState, Stage
from orga.workflows.types.json_text import object_in
from orga.workflows.types.text import one_line

YES = frozenset({"yes", "y", "ok", "approve", "approved"})
"""What approves a plan, in any case."""

HOW = 'answer "yes", or what is to change, or {"steps": [...]} in its place'

HOW_OF_PIPELINE = 'answer "yes", or abort the goal'


def with_plan_to_review(state: GoalState) -> GoalState:
    """Return the state whose plan is carried out, or is put before a person first where that is wanted."""
    if state.goal_config.plan_review == "never":
        return state.with_pursuit(stage="execute")
    steps = ", ".join(f"{step.id} ({step.skill}): {step.goal}" for step in state.pursuit.open_steps)
    how = HOW_OF_PIPELINE if state.pipeline else HOW
    return _asking(state, f"Is this plan right? {how}. {one_line(steps, MAX_QUESTION_CHARS)}")


def _asking(state: GoalState, question: str) -> GoalState:
    number = state.pursuit.questions + 1
    return state.with_pursuit(stage="review", question=question[:MAX_QUESTION_CHARS], questions=number)


def with_reviewed(state: GoalState, answer: str, setup: Setup) -> GoalState:
    """Take in what a person says of the plan; another plan that is none is asked about once more."""
    if answer.strip().casefold() in YES:
        return state.with_pursuit(stage="execute", question="")
    if state.pipeline:
        return _asking(state, f"The plan is that of pipeline {state.pipeline}: {HOW_OF_PIPELINE}")
    try:
        given = object_in(answer) if answer.lstrip().startswith("{") else None
    except ValueError as error:
        return _asking(state, f"That is no plan ({error}): {HOW}")
    if given is None:
        told = with_told(state, f"[Plan sent back by the operator] {answer}\nNothing of it was done.")
        stage: Stage = "decide" if any(step.state != "open" for step in state.pursuit.steps) else "plan"
        return told.with_pursuit(stage=stage, question="", is_guided=True)
    try:
        after = with_steps(state, given.get("steps"), setup)
    except Unusable as error:
        return _asking(state, f"That is no plan ({error}): {HOW}")
    told = with_told(after, "[Plan given by the operator] It stands in place of yours.")
    told = told.with_note("PlanAdjusted", by=OPERATOR, steps=told_steps(told.pursuit.open_steps))
    return told.with_pursuit(stage="execute", question="")
