"""The stages between a reply and its effects, in their order; one more is a function in its own file, and a row."""

from collections.abc import Awaitable, Callable, Sequence

from workflows.phases.answers import check_answer
from workflows.phases.approve import approve_reply
from workflows.phases.critique import review_answer, review_calls
from workflows.phases.gate import Gated, confirm_calls
from workflows.phases.more_budget import ask_for_calls
from workflows.phases.pace import checkpoint
from workflows.phases.run import Run

Stage = Callable[[Run, Gated], Awaitable[Gated]]
"""Narrows what may be carried out, or how an answer is taken in; none makes a permission but by the gate."""

CALL_STAGES: Sequence[Stage] = (
    approve_reply,  # first: an approval binds to the very verdict, and what people turn down costs nothing further on
    ask_for_calls,  # before critics: what is beyond the budget is not worth a review
    review_calls,  # critics see just what would be run
    confirm_calls,  # last: whatever held the run up since, policy of now decides
)

ANSWER_STAGES: Sequence[Stage] = (
    approve_reply,  # first: as for calls
    check_answer,  # before critics: what goes back to the model anyway is not worth a review
    review_answer,  # last: critics see an answer that nothing else is wrong with
)


async def pass_stages(run: Run, gated: Gated) -> Gated:
    """Let a reply pass its stages, one after the other.

    Raises:
        Interrupted: The run is to end: nothing of the reply may be carried out.
    """
    first, *further = CALL_STAGES if gated.reply.calls else ANSWER_STAGES
    gated = await first(run, gated)
    for stage in further:
        await checkpoint(run)
        gated = await stage(run, gated)
    run.go_on()
    return gated
