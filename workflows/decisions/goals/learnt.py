"""What a goal leaves behind for later: what its steps brought, as evidence beside its answer."""

from orga.workflows.types.goals.pursuit import GoalState, PlanStep
from orga.workflows.types.knowledge import StepOutput
from orga.workflows.types.text import clip

OUTPUT_BYTES = 2_000


def step_outputs(state: GoalState) -> tuple[StepOutput, ...]:
    """Return what each step that is done has brought, cut where it is long."""
    done = [step for step in state.pursuit.steps if step.state == "done"]
    found = [(step, brought_by(state, step) or step.summary) for step in done]
    return tuple(
        StepOutput(step=step.id, source=step.source, text=clip(text, OUTPUT_BYTES)) for step, text in found if text
    )


def brought_by(state: GoalState, step: PlanStep) -> str:
    """Return the result of a step, "" where the conversation has forgotten it."""
    course = state.pursuit.course
    if course and (kept := course.outputs.get(step.id)):
        return kept
    return next((m.text for m in state.conversation.messages if m.role == "tool" and m.call_id == step.call_id), "")
