"""The plans of pipelines, and the check of a starter's request for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orga.workflows.types.goals.pipelines import MAX_ROUNDS, Pipeline, PipelineKind, PipelineStep
from orga.workflows.types.goals.pursuit import MAX_GOAL_CHARS, OPERATOR, GoalState, PlanStep
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import one_line

REDUCE = "reduce"
"""The id of the reducing step. Other steps are numbered: `step-1`, `map-1`, `draft-1`, `critique-1`."""

_STEP_PURPOSES = {
    "step": "do its part",
    "map": "see to one input",
    REDUCE: "make one answer of all",
    "draft": "write a draft",
    "critique": "review it",
}
"""The purpose of a step without a task, for people."""


def find_pipeline(state: GoalState) -> Pipeline | None:
    """Return the goal's pipeline, or None if it is not prepared or has none."""
    return state.setup.pipeline if state.setup else None


def required_pipeline(state: GoalState) -> Pipeline:
    """Raise TypeError if the goal has none."""
    pipeline = find_pipeline(state)
    if pipeline is None:
        raise TypeError("the goal has no pipeline")
    return pipeline


def pipeline_problem(state: GoalState, setup: Setup) -> str:
    """Return why the goal cannot use its pipeline, or "" if it can or has none."""
    pipeline, name = setup.pipeline, state.pipeline
    if not name:
        return ""
    if pipeline is None:
        return f"pipeline: the worker that prepared the goal is of a version without pipelines, so there is no {name!r}"
    if changed := _first_changed_step(state, pipeline):
        return f"pipeline: {name!r} has changed, and {changed} is no longer one of its steps; start a new goal"
    return inputs_problem(name, state.inputs, pipeline)


def _first_changed_step(state: GoalState, pipeline: Pipeline) -> str:
    """Return the first step of a shared past that today's pipeline would not make, or ""."""
    inputs = pipeline_inputs(state.inputs, pipeline)
    steps = pipeline_steps(pipeline, inputs, MAX_ROUNDS)
    known = {step.id: (step.skill, step.goal) for step in steps}
    planned = [step for step in own_pipeline_steps(state) if step.by != OPERATOR]
    is_other = [step.id for step in planned if known.get(step.id) != (step.skill, step.goal)]
    is_more = pipeline.takes_inputs and 0 < len(own_pipeline_steps(state)) < len(steps)
    return next(iter(is_other), f"map-{len(inputs)}" if is_more else "")


def inputs_problem(name: str, given: tuple[str, ...] | None, pipeline: Pipeline) -> str:
    number = len(pipeline_inputs(given, pipeline))
    if not pipeline.takes_inputs:
        return "" if given is None else f"inputs: pipeline {name!r} is a {pipeline.kind}, which takes none"
    if not number:
        return f"inputs: pipeline {name!r} has no inputs, and the goal gives none. Give at least one"
    if number > pipeline.max_inputs:
        return f"inputs: {number} of them, and pipeline {name!r} takes {pipeline.max_inputs} (max_inputs)"
    return ""


def pipeline_inputs(given: tuple[str, ...] | None, pipeline: Pipeline) -> tuple[str, ...]:
    """Return the inputs to map. The goal's own override those of the pipeline."""
    return pipeline.inputs if given is None else given


def pipeline_steps(pipeline: Pipeline, inputs: tuple[str, ...], rounds: int) -> tuple[PlanStep, ...]:
    """Return the steps of the pipeline. `rounds` is the number of drafts with their critiques."""
    return _STEPS_BY_KIND[pipeline.kind](pipeline, inputs, rounds)


def _chain_steps(pipeline: Pipeline, _: tuple[str, ...], __: int) -> tuple[PlanStep, ...]:
    numbers = range(1, len(pipeline.steps) + 1)
    return tuple(_plan_step(pipeline, f"step-{each}", (f"step-{each - 1}",) if each > 1 else ()) for each in numbers)


def _map_reduce_steps(pipeline: Pipeline, inputs: tuple[str, ...], _: int) -> tuple[PlanStep, ...]:
    maps = tuple(_plan_step(pipeline, f"map-{number}", (), each) for number, each in enumerate(inputs, start=1))
    return (*maps, _plan_step(pipeline, REDUCE, tuple(step.id for step in maps)))


def _director_steps(pipeline: Pipeline, _: tuple[str, ...], rounds: int) -> tuple[PlanStep, ...]:
    return tuple(step for number in range(1, rounds + 1) for step in draft_round_steps(pipeline, number))


_STEPS_BY_KIND: Mapping[PipelineKind, Callable[[Pipeline, tuple[str, ...], int], tuple[PlanStep, ...]]] = {
    "chain": _chain_steps,
    "map_reduce": _map_reduce_steps,
    "director_critic": _director_steps,
}


def draft_round_steps(pipeline: Pipeline, number: int) -> tuple[PlanStep, ...]:
    """Return a draft of a director, and its critique."""
    before = (f"critique-{number - 1}",) if number > 1 else ()
    draft = _plan_step(pipeline, f"draft-{number}", before)
    return draft, _plan_step(pipeline, f"critique-{number}", (draft.id,))


def own_pipeline_steps(state: GoalState) -> tuple[PlanStep, ...]:
    """Return the steps of the pipeline itself, without those that a person has added."""
    return tuple(step for step in state.pursuit.steps if step_role(step.id)[0] != OPERATOR)


def step_role(step_id: str) -> tuple[str, int]:
    """Return the role of a pipeline's step, and its number, or 0 if it has none."""
    role, _, number = step_id.partition("-")
    return role, int(number) if number.isdecimal() else 0


def configured_step(pipeline: Pipeline, step_id: str) -> PipelineStep:
    """Return the configuration of a step: its agent and its task."""
    return pipeline.parts[_configuration_key(step_id)]


def _configuration_key(step_id: str) -> str:
    role, number = step_role(step_id)
    return {"step": f"steps.{number - 1}", "draft": "director", "critique": "critic"}.get(role, role)


def _plan_step(pipeline: Pipeline, step_id: str, needs: tuple[str, ...], given: str = "") -> PlanStep:
    part = configured_step(pipeline, step_id)
    goal = part.task or _STEP_PURPOSES[step_role(step_id)[0]]
    shown = one_line(f"{goal}: {given}" if given else goal, MAX_GOAL_CHARS)
    step = PlanStep(id=step_id, goal=shown, skill=part.agent)
    return step.with_fields(depends_on=needs) if needs else step
