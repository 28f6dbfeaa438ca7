"""A step by a person's word, in place of the one that is due next."""

from typing import Any, cast

from pydantic_core import to_json

from orga.workflows.decisions.control.interventions import with_guidance
from orga.workflows.decisions.goals.plans import skills_of
from orga.workflows.types.control import Intervention
from orga.workflows.types.goals.pursuit import MAX_ARGUMENTS_BYTES, MAX_GOAL_CHARS, OPERATOR, GoalState, PlanStep
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import clean_text, one_line


def with_override(state: GoalState, raw: object) -> GoalState:
    """Return the state whose next step is this one; the model is told.

    Args:
        state: The goal's.
        raw: `{"skill": ..., "input": ...}`: the arguments of a call as an object, or what it is to do as a text.

    Raises:
        ValueError: There is no plan yet, no such skill, or no input.
    """
    setup = state.setup
    if setup is None or not state.pursuit.steps:
        raise ValueError("override_step: there is no plan yet; steer the goal instead")
    skill, given = _wanted(raw, setup)
    pursuit = state.pursuit
    busy = set(pursuit.due) if pursuit.stage in {"execute", "evaluate"} else set[str]()
    waiting = [step for step in pursuit.open_steps if step.id not in busy]
    before = {step.id for step in pursuit.steps if step.state == "done"} | busy
    due = next((step for step in waiting if before.issuperset(step.depends_on)), None)
    known = {step.id for step in pursuit.steps}
    number = next(n for n in range(1, len(known) + 2) if f"{OPERATOR}-{n}" not in known)
    step = due or PlanStep(id=f"{OPERATOR}-{number}", goal="", skill="")
    arguments = given if isinstance(given, dict) else None
    text = given if isinstance(given, str) else f"call {skill}"
    replaced = step.with_fields(skill=skill, goal=one_line(text, MAX_GOAL_CHARS), arguments=arguments, by=OPERATOR)
    others = [*pursuit.steps, replaced] if due is None else [replaced if s.id == due.id else s for s in pursuit.steps]
    what = "is now" if due is not None else "is added to the plan:"
    told = f"By the operator's word step {replaced.id} {what} {skill}: {one_line(_shown(given), MAX_GOAL_CHARS)}"
    state = state.with_pursuit(steps=tuple(others), is_guided=True)
    state = state.with_note("StepOverridden", step=replaced.id, skill=skill)
    return with_guidance(state, Intervention(kind="steer", text=clean_text(told), is_for_delegates=False))


def _wanted(raw: object, setup: Setup) -> tuple[str, dict[str, Any] | str]:
    said = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    skill, given, skills = said.get("skill"), said.get("input"), skills_of(setup)
    if not isinstance(skill, str) or skill not in skills:
        raise ValueError(f"override_step: skill {skill!r} is none of {', '.join(skills)}")
    match given:
        case str() if given.strip():
            return skill, given
        case dict():
            arguments = cast("dict[str, Any]", given)
        case _:
            raise ValueError("override_step: input: give the arguments as an object, or what it is to do as a text")
    if len(to_json(arguments, inf_nan_mode="strings")) > MAX_ARGUMENTS_BYTES:
        raise ValueError(f"override_step: input: at most {MAX_ARGUMENTS_BYTES} bytes of JSON")
    return skill, arguments


def _shown(given: dict[str, Any] | str) -> str:
    return given if isinstance(given, str) else to_json(given, inf_nan_mode="strings").decode()
