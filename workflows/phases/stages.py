"""The stages between a reply and its effects, as the table has them; one more is a function in its file, and a row."""

from collections.abc import Awaitable, Callable, Mapping

from orga.workflows.decisions.stages import ANSWER_STAGES, CALL_STAGES, StageName
from orga.workflows.phases.answers import check_answer
from orga.workflows.phases.approvals import approve_reply
from orga.workflows.phases.control.pace import checkpoint
from orga.workflows.phases.critique import review_answer, review_calls
from orga.workflows.phases.gate import Gated, confirm_calls
from orga.workflows.phases.questions import ask_for_calls
from orga.workflows.phases.run import Run

Pass = Callable[[Run, Gated], Awaitable[Gated]]
"""Narrows what may be carried out, or how an answer is taken in; none makes a permission but by the gate."""

OF_CALLS: Mapping[StageName, Pass] = {
    "approval": approve_reply,
    "budget": ask_for_calls,
    "critics": review_calls,
    "confirmation": confirm_calls,
}

OF_ANSWERS: Mapping[StageName, Pass] = {"approval": approve_reply, "check": check_answer, "critics": review_answer}


async def pass_stages(run: Run, gated: Gated) -> Gated:
    """Let a reply pass its stages, one after the other.

    Raises:
        Interrupted: The run is to end: nothing of the reply may be carried out.
    """
    stages, passes = (CALL_STAGES, OF_CALLS) if gated.reply.calls else (ANSWER_STAGES, OF_ANSWERS)
    first, *further = (passes[stage.name] for stage in stages)
    gated = await first(run, gated)
    for stage in further:
        await checkpoint(run)
        gated = await stage(run, gated)
    run.raise_if_interrupted()
    return gated
