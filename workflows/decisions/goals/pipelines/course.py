"""How a goal with a pipeline goes on, and what it answers: in place of a planner, what its configuration says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pydantic_core import to_json

from orga.workflows.decisions.goals.change import told_steps
from orga.workflows.decisions.goals.pipelines.next import with_next
from orga.workflows.decisions.goals.pipelines.plans import (
    REDUCE,
    inputs_of,
    known_pipeline,
    own_steps,
    pipeline_of,
    role_of,
    steps_of,
)
from orga.workflows.decisions.goals.pipelines.tasks import ROOM_BYTES, task_of
from orga.workflows.decisions.goals.pipelines.verdicts import best_draft, verdict_in
from orga.workflows.decisions.goals.plans import call_of, delegated, ready_steps
from orga.workflows.decisions.goals.pursue import honest_confidence
from orga.workflows.decisions.goals.replies import Unusable
from orga.workflows.decisions.goals.review import with_plan_to_review
from orga.workflows.types.control import Intervention, Stop
from orga.workflows.types.goals.pipelines import Pipeline, PipelineKind
from orga.workflows.types.goals.pursuit import MAX_KEPT_STEPS, OPERATOR, Course, GoalState, PlanStep
from orga.workflows.types.messages import UNUSABLE, ToolCall
from orga.workflows.types.recovery import Outcome
from orga.workflows.types.text import clip, clip_json, one_line, undelimited

KEPT_BYTES = 100_000
"""Of JSON that all outputs together may take which later steps need."""

GUIDANCE_BYTES = 4_000
ERROR_CHARS = 300
WHY_CHARS = 200


def _known(state: GoalState) -> tuple[Pipeline, Course]:
    return known_pipeline(state), state.pursuit.course or Course()


def with_pipeline_plan(state: GoalState) -> GoalState:
    """Return the state with the plan that the pipeline stands for."""
    pipeline, course = _known(state)
    inputs = inputs_of(state.inputs, pipeline)
    by_people = state.pursuit.open_steps_of_people
    steps = (*by_people, *steps_of(pipeline, inputs, 1))
    longest = len(by_people) + len(steps_of(pipeline, inputs, pipeline.rounds))
    after = with_plan_to_review(state.with_pursuit(steps=steps, longest=longest, course=course, due=()))
    return after.with_note("PlanMade", pipeline=state.pipeline, kind=pipeline.kind, steps=told_steps(steps))


def with_heard(state: GoalState, said: Sequence[Intervention]) -> GoalState:
    """Keep what people said for all steps to come, but for what is for the goal's own model.

    Of too much the latest: the journal tells what is left out, or cut.
    """
    _, course = _known(state)
    texts = [each.text for each in said if each.is_for_delegates]
    kept = [*course.guidance, *texts]
    while sum(len(text.encode()) for text in kept) > GUIDANCE_BYTES and len(kept) > 1:
        state = _with_cut(state, kept.pop(0), "")
    if kept and len(kept[0].encode()) > GUIDANCE_BYTES:
        whole, kept[0] = kept[0], clip(kept[0], GUIDANCE_BYTES, "the rest is in the journal")
        state = _with_cut(state, whole, kept[0])
    return state.with_pursuit(course=course.with_fields(guidance=tuple(kept)))


def _with_cut(state: GoalState, text: str, kept: str) -> GoalState:
    told = {"bytes": len(text.encode()), "kept": len(kept.encode()), "text": one_line(text, WHY_CHARS)}
    return state.with_note("InterventionReceived", kind="cut", of="guidance", **told)


def with_pipeline_round(state: GoalState) -> GoalState:
    """Return the state with the steps that are done next: all that can be, as far as their tasks fit into one reply.

    What a person has put there is done first, and alone.
    """
    pursuit, most = state.pursuit, state.goal_config.max_parallel_steps
    ready = ready_steps(pursuit.steps, MAX_KEPT_STEPS)
    by_person = [step for step in ready if step.by == OPERATOR]
    due, size = list[PlanStep](), 0
    for step in by_person[:1] or ready[:most]:
        size += len(to_json(_call(state, step)))
        if due and size > ROOM_BYTES:
            break
        due.append(step)
    return state.with_pursuit(due=tuple(step.id for step in due), stage=pursuit.stage if due else "decide")


def calls_of(state: GoalState) -> tuple[ToolCall | None, ...]:
    """Return the calls of the steps that are due; None for one that a person described and a model has to make."""
    return tuple(_call(state, step) for step in state.pursuit.due_steps)


def _call(state: GoalState, step: PlanStep) -> ToolCall | None:
    pipeline, _ = _known(state)
    if step.by == OPERATOR:
        return call_of(step, frozenset(tool.name for tool in state.setup.tools) if state.setup else frozenset())
    return delegated(step, task_of(state, pipeline, step))


def with_brought(state: GoalState, outcomes: Sequence[Outcome]) -> GoalState:
    """Take in what the steps of the round brought, behind `with_executed`; what may be tried again is open again."""
    pipeline, course = _known(state)
    outputs, again = dict(course.outputs), list[PlanStep]()
    share = KEPT_BYTES // max(len(inputs_of(state.inputs, pipeline)), 5)
    for step, outcome in zip(state.pursuit.due_steps, outcomes, strict=True):
        if outcome.status == "ok" and role_of(step.id)[0] != OPERATOR:
            outputs[step.id] = clip_json(undelimited(outcome.text).strip(), share)
        if _may_be_tried_again(step, outcome, pipeline):
            again.append(step.with_fields(state="open"))
    pursuit = state.pursuit.with_steps(again)
    state = state.with_pursuit(steps=pursuit.steps, course=course.with_fields(outputs=outputs), is_guided=False)
    state = _with_needed_alone(_with_verdict(state, pipeline), pipeline)
    is_whole = all(outcome.status == "ok" for outcome in outcomes)
    if pipeline.evaluate and any(step.state == "done" for step in state.pursuit.due_steps):
        return state.with_pursuit(stage="evaluate")
    state = state.with_pursuit(stage="decide")
    # what is done is done ahead of any limit; what was cut short is looked at behind them
    return with_next(state) if is_whole else state


def _may_be_tried_again(step: PlanStep, outcome: Outcome, pipeline: Pipeline) -> bool:
    """A denial stays one, and what may have acted is not repeated unseen."""
    is_ours = step.by != OPERATOR
    return is_ours and outcome.status == "failed" and not outcome.may_have_acted and step.attempts < pipeline.attempts


def _with_verdict(state: GoalState, pipeline: Pipeline) -> GoalState:
    """Take in the verdict of a critic; one that is none is asked for again, `stuck_threshold` times in all."""
    pursuit, course = state.pursuit, state.pursuit.course or Course()
    found = [step for step in pursuit.due_steps if role_of(step.id)[0] == "critique" and step.state == "done"]
    if not found:
        return state
    [critique] = found
    try:
        verdict = verdict_in(course.outputs[critique.id], pipeline)
    except Unusable as error:
        is_last = critique.attempts >= state.goal_config.stuck_threshold or critique.by == OPERATOR
        unusable = critique.with_fields(state="failed" if is_last else "open", error=f"{UNUSABLE}{error}"[:ERROR_CHARS])
        return state.with_pursuit(steps=pursuit.with_steps([unusable]).steps)
    scores = (*course.scores, verdict.score)
    is_good = pipeline.fixed_rounds is None and verdict.score >= pipeline.threshold
    quality = "good" if is_good else "partial"
    draft = next(step for step in pursuit.steps if step.id == f"draft-{len(scores)}")
    draft = draft.with_fields(score=verdict.score, label=quality)
    state = state.with_pursuit(
        steps=pursuit.with_steps([draft, critique.with_fields(error="")]).steps,
        course=course.with_fields(scores=scores, remarks=verdict.remarks),
    )
    told = {"score": round(verdict.score, 3), "quality": quality, "by": critique.skill}
    return state.with_note("StepEvaluated", step=draft.id, **told)


def _with_needed_alone(state: GoalState, pipeline: Pipeline) -> GoalState:
    """Let go of what no later step needs, and no answer is made of."""
    course = state.pursuit.course or Course()
    needed = _KINDS[pipeline.kind].needed(course)
    kept = {step_id: text for step_id, text in course.outputs.items() if step_id in needed}
    return state.with_pursuit(course=course.with_fields(outputs=kept))


def _latest(course: Course) -> set[str]:
    return set(list(course.outputs)[-1:])


def _reduced(course: Course) -> set[str]:
    return {REDUCE} if REDUCE in course.outputs else set(course.outputs)


def _best_and_latest(course: Course) -> set[str]:
    drafts = [step_id for step_id in course.outputs if role_of(step_id)[0] == "draft"]
    return {f"draft-{best_draft(course.scores)}", *drafts[-1:]}


def pipeline_answer(state: GoalState, ending: Stop) -> str:
    """Return the answer of the pipeline; "" where a model has to write one.

    That of the last step, or the best draft, which says so where the goal ends early. Once people have said something
    that no step has heard, or have added steps, the goal's model writes the answer.
    """
    pipeline = pipeline_of(state)
    course = state.pursuit.course
    if (
        pipeline is None
        or course is None
        or state.pursuit.is_guided
        or len(own_steps(state)) < len(state.pursuit.steps)
    ):
        return ""
    return _KINDS[pipeline.kind].answer(state, ending)


def _of_last_step(state: GoalState, ending: Stop) -> str:
    last = own_steps(state)[-1:] if ending[0] == "completed" else ()
    outputs = state.pursuit.course.outputs if state.pursuit.course else {}
    return "".join(outputs.get(step.id, "") for step in last)


def best_so_far(state: GoalState, ending: Stop) -> str:
    """Return the best draft of a director, which says so where the goal ends early; "" where none has its score."""
    course = state.pursuit.course
    if course is None or not course.scores:
        return ""
    draft = f"draft-{best_draft(course.scores)}"
    text = course.outputs.get(draft, "")
    if ending[0] == "completed" or not text:
        return text
    why = f"{ending[0]}{f' ({one_line(ending[1], WHY_CHARS)})' if ending[1] else ''}"
    return f"The goal ended early: {why}. Confidence {honest_confidence(state):.2f}. The best draft, {draft}:\n\n{text}"


class _Kind(NamedTuple):
    """What becomes of the outputs of a pipeline of this kind."""

    needed: Callable[[Course], set[str]]
    """The steps whose outputs are kept."""
    answer: Callable[[GoalState, Stop], str]


_KINDS: Mapping[PipelineKind, _Kind] = {
    "chain": _Kind(_latest, _of_last_step),
    "map_reduce": _Kind(_reduced, _of_last_step),
    "director_critic": _Kind(_best_and_latest, best_so_far),
}
