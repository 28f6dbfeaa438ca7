"""The answer that a pipeline has made, so that no model has to write one."""

from orga.workflows.decisions.goals.pipelines.plans import own_steps, pipeline_of
from orga.workflows.decisions.goals.pipelines.verdicts import best_draft
from orga.workflows.decisions.goals.pursue import honest_confidence
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.text import one_line

WHY_CHARS = 200


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
    if pipeline.kind == "director_critic":
        return best_so_far(state, ending)
    last = own_steps(state)[-1:] if ending[0] == "completed" else ()
    return "".join(course.outputs.get(step.id, "") for step in last)


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
