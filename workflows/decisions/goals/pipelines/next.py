"""What is next for a goal with a pipeline: in place of a decider, what its configuration says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from orga.workflows.decisions.goals.change import told_steps
from orga.workflows.decisions.goals.pipelines.plans import known_pipeline, own_steps, round_steps
from orga.workflows.decisions.goals.pipelines.verdicts import convergence
from orga.workflows.decisions.goals.plans import ready_steps
from orga.workflows.decisions.goals.pursue import with_ending
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.goals.pursuit import MAX_KEPT_STEPS, OPERATOR, GoalState, PlanStep
from orga.workflows.types.text import one_line

ERROR_CHARS = 200


class Next(NamedTuple):
    """What is next."""

    action: Literal["continue", "done", "stuck"]
    why: str = ""
    steps: tuple[PlanStep, ...] | None = None
    """The plan from here on, where it changes."""


def with_next(state: GoalState) -> GoalState:
    """Return the state with what is next, as its pipeline has it: no model is asked."""
    if any(step.by == OPERATOR for step in ready_steps(state.pursuit.steps, MAX_KEPT_STEPS)):
        return state.with_pursuit(stage="execute").with_note("DecisionMade", action="continue", by="operator")
    pipeline = known_pipeline(state)
    found = _NEXT[pipeline.kind](state, pipeline)
    why = found.why or _again(state)
    told = {"reason": why} if why else {}
    state = state.with_note("DecisionMade", action=found.action, by="rule", **told)
    if found.action == "done":
        return with_ending(state, ("completed", ""))
    if found.action == "stuck":
        return with_ending(state, ("stuck", found.why))
    if found.steps is not None:
        state = state.with_pursuit(steps=found.steps)
        state = state.with_note("PlanAdjusted", by="pipeline", steps=told_steps(state.pursuit.open_steps))
    if not ready_steps(state.pursuit.steps, 1):
        return with_ending(state, ("stuck", "no step of the pipeline can be done"))
    return state.with_pursuit(stage="execute")


def _again(state: GoalState) -> str:
    """Return which steps are done once more, and why, "" where none is."""
    again = [step for step in own_steps(state) if step.state == "open" and step.attempts]
    return "; ".join(f"{step.id} again: {one_line(step.error, ERROR_CHARS)}" for step in again)


def _failed(steps: Sequence[PlanStep]) -> str:
    """Return which of the steps failed, and why, "" where none did."""
    failed = [step for step in steps if step.state == "failed"]
    return "; ".join(f"{step.id} failed: {one_line(step.error or step.summary, ERROR_CHARS)}" for step in failed[:3])


def _after_chain(state: GoalState, _: Pipeline) -> Next:
    if why := _failed(own_steps(state)):
        return Next("stuck", why)
    return Next("continue" if any(step.state == "open" for step in own_steps(state)) else "done")


def _after_map(state: GoalState, pipeline: Pipeline) -> Next:
    *maps, reduce = own_steps(state)
    failed = [step for step in maps if step.state == "failed"]
    if reduce.state == "done":
        return Next("done")
    if why := _failed([reduce]):
        return Next("stuck", why)
    if len(failed) > pipeline.allow_failed or len(failed) == len(maps):
        return Next("stuck", f"{_failed(failed)} ({len(failed)} of {len(maps)}, {pipeline.allow_failed} may)")
    if any(step.state == "open" for step in maps) or not failed:
        return Next("continue")
    left = tuple(step.id for step in maps if step.state == "done")
    if reduce.depends_on == left:
        return Next("continue")
    without = f"without {', '.join(step.id for step in failed)}"
    steps = state.pursuit.with_steps([reduce.with_fields(depends_on=left)]).steps
    return Next("continue", without, steps)


def _after_draft(state: GoalState, pipeline: Pipeline) -> Next:
    scores = state.pursuit.course.scores if state.pursuit.course else ()
    if why := _failed(own_steps(state)):
        return Next("stuck", why)
    if any(step.state == "open" for step in own_steps(state)):
        return Next("continue")
    found = convergence(pipeline, scores)
    if found.what != "again":
        return Next(found.what, found.why)
    return Next("continue", found.why, (*state.pursuit.steps, *round_steps(pipeline, len(scores) + 1)))


_NEXT: Mapping[str, Callable[[GoalState, Pipeline], Next]] = {
    "chain": _after_chain,
    "map_reduce": _after_map,
    "director_critic": _after_draft,
}
