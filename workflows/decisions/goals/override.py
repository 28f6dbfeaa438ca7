"""Steps that a person gives, each in place of the next one that is due."""

from typing import Any

from pydantic_core import to_json

from orga.workflows.decisions.control.interventions import with_guidance
from orga.workflows.decisions.goals.plans import agent_arguments_problem, available_agents, available_skills
from orga.workflows.decisions.goals.progress import UNFINISHED_STOPS
from orga.workflows.decisions.goals.review import with_plan_to_review
from orga.workflows.types.control import Intervention
from orga.workflows.types.goals.pursuit import (
    MAX_ARGUMENTS_BYTES,
    MAX_GOAL_CHARS,
    OPERATOR,
    GoalState,
    PlanStep,
    Pursuit,
)
from orga.workflows.types.json_text import MAX_DEPTH, as_object, is_deeper
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import MAX_JSON_GROWTH, clean_json, clean_text, one_line, to_json_text

MAX_LINE_CHARS = MAX_JSON_GROWTH * MAX_ARGUMENTS_BYTES
"""Characters of an input on one line, so that nothing is cut."""


def with_override(state: GoalState, raw: object) -> GoalState:
    """Return the state with this as its next step, and guidance about it. Raise ValueError if it is not possible.

    Before a plan exists, the step is added to the plan that is made next. If people are reviewing the plan, they are
    asked again, because it has changed.

    Args:
        raw: `{"skill": ..., "input": ...}`. The input is the arguments of a call as an object, or a text. An agent gets
            the text as its task. For a tool, the model makes the arguments from it.
    """
    setup, pursuit = state.setup, state.pursuit
    if setup is None:
        raise ValueError("override_step: the goal is being prepared; send it again in a moment")
    ending = pursuit.ending
    if ending is not None and ending.reason not in UNFINISHED_STOPS:
        raise ValueError(f"override_step: the goal is ending ({ending.reason}); raise its limit first, or fork it")
    skill, given = _parse_override(raw, setup)
    most = state.goal_config.max_plan_steps
    if len(pursuit.open_steps_of_people) >= most:
        raise ValueError(f"override_step: {most} steps by people wait already; wait until one of them is done")
    due = _step_to_replace(pursuit)
    step = due or PlanStep(id=_next_override_id(pursuit), goal="", skill="")
    goal, arguments = _goal_and_arguments(skill, given, setup)
    step = step.with_fields(skill=skill, goal=goal, arguments=arguments, by=OPERATOR)
    if due is None:
        steps, change = (*pursuit.steps, step), "is added to the plan:"
    else:
        steps, change = tuple(step if old.id == due.id else old for old in pursuit.steps), "is now"
    text = given if isinstance(given, str) else to_json_text(given)
    message = f"On the operator's instruction, step {step.id} {change} {skill}: {one_line(text, MAX_LINE_CHARS)}"
    longest = max(pursuit.longest, sum(step.state == "open" for step in steps))
    state = state.with_pursuit(steps=steps, longest=longest, is_guided=True)
    state = state.with_note("StepOverridden", step=step.id, skill=skill)
    state = with_plan_to_review(state) if pursuit.stage == "review" else state
    return with_guidance(state, Intervention(kind="steer", text=clean_text(message), is_for_delegates=False))


def _goal_and_arguments(skill: str, given: dict[str, Any] | str, setup: Setup) -> tuple[str, dict[str, Any] | None]:
    """Return a step's goal and the arguments of its call. None leaves them to the model."""
    if isinstance(given, dict):
        return f"call {skill}", given
    if skill in available_agents(setup):
        return one_line(given, MAX_GOAL_CHARS), {"task": given}
    return one_line(given, MAX_LINE_CHARS), None


def _step_to_replace(pursuit: Pursuit) -> PlanStep | None:
    """Return the next step that is due, or None. A person's step replaces it."""
    if pursuit.stage == "plan":
        return None
    busy = set(pursuit.due) if pursuit.stage in {"execute", "evaluate"} else set[str]()
    before = {step.id for step in pursuit.steps if step.state == "done"} | busy
    waiting = (step for step in pursuit.open_steps if step.id not in busy and step.by != OPERATOR)
    return next((step for step in waiting if before.issuperset(step.depends_on)), None)


def _next_override_id(pursuit: Pursuit) -> str:
    known, number = {step.id for step in pursuit.steps}, 1
    while f"{OPERATOR}-{number}" in known:
        number += 1
    return f"{OPERATOR}-{number}"


def _parse_override(raw: object, setup: Setup) -> tuple[str, dict[str, Any] | str]:
    override = as_object(raw)
    skill, given, skills = override.get("skill"), override.get("input"), available_skills(setup)
    if not isinstance(skill, str) or skill not in skills:
        raise ValueError(f"override_step: skill {skill!r} is none of {', '.join(skills)}")
    match given:
        case str() if given.strip():
            wanted = clean_text(given)
        case dict() if is_deeper(given, MAX_DEPTH):  # pyright: ignore[reportUnknownArgumentType]
            raise ValueError(f"override_step: input: nested more than {MAX_DEPTH} deep")
        case dict():
            wanted = clean_json(given)
        case _:
            raise ValueError("override_step: input: give the arguments as an object, or the task as a text")
    if skill in available_agents(setup) and (problem := agent_arguments_problem(wanted)):
        raise ValueError(f"override_step: input: {problem}")
    if len(to_json(wanted, inf_nan_mode="strings")) > MAX_ARGUMENTS_BYTES:
        raise ValueError(f"override_step: input: at most {MAX_ARGUMENTS_BYTES} bytes of JSON; put documents into files")
    return skill, wanted
