"""The stages between a reply and its effects, as the table has them; one more is a function in its file, and a row."""

from collections.abc import Awaitable, Callable, Mapping

from orga.workflows.decisions import observe
from orga.workflows.decisions.decision import with_undecided_answer
from orga.workflows.decisions.stages import ANSWER_STAGES, CALL_STAGES, StageName
from orga.workflows.phases.control.pace import checkpoint
from orga.workflows.phases.critique import call_objection, review_answer, review_calls
from orga.workflows.phases.gate import AllowedCall, Conclusion, Gated, conclusion, confirm_calls
from orga.workflows.phases.questions import approve_reply, ask_for_calls
from orga.workflows.phases.run import Run
from orga.workflows.types.recovery import Outcome
from orga.workflows.types.setup import Setup


async def check_answer(run: Run, gated: Gated) -> Gated:
    """Find the first thing that is wrong with the answer."""
    return gated._replace(conclusion=_problem(run, gated))


def _problem(run: Run, gated: Gated) -> Conclusion | None:
    verdict = gated.answer
    if verdict is None:
        return None
    if verdict.decision == "invalid":
        return conclusion(observe.with_misfit, gated.classified, verdict)
    if verdict.decision != "allow":
        return conclusion(observe.with_denied_answer, gated.reply, verdict)
    if run.state.due_decisions:
        return conclusion(with_undecided_answer, gated.reply)
    if not gated.classified.is_usable:
        return conclusion(observe.with_repair, gated.classified)
    return None


def conclude(run: Run, gated: Gated) -> None:
    """Take a reply in that asks for no calls, or is to be repaired: an answer as the stages have it."""
    run.change(gated.conclusion or conclusion(observe.with_answer, gated.reply))


Pass = Callable[[Run, Gated], Awaitable[Gated]]
"""Narrows what may be carried out, or how an answer is taken in; none makes a permission but by the gate."""

OF_CALLS: Mapping[StageName, Pass] = {
    "approval": approve_reply,
    "budget": ask_for_calls,
    "critics": review_calls,
    "confirmation": confirm_calls,
}

OF_ANSWERS: Mapping[StageName, Pass] = {"approval": approve_reply, "check": check_answer, "critics": review_answer}

IDLE: Mapping[StageName, Callable[[Setup], bool]] = {"critics": lambda setup: not setup.critics}
"""The stages that have nothing to do in a run with this setup."""

OBJECTIONS: Mapping[StageName, Callable[[Run, AllowedCall, str], Awaitable[Outcome | None]]] = {
    "critics": call_objection
}
"""Of a call that is none of the reply's: it stands in for another, or is sent again."""


async def objection(run: Run, permitted: AllowedCall, place: str) -> Outcome | None:
    """Return what becomes of a call that is none of the reply's, by the first stage that turns it down, or None.

    Raises:
        Interrupted: The run is ended before.
    """
    for stage in CALL_STAGES:
        if stage.name in OBJECTIONS and (found := await OBJECTIONS[stage.name](run, permitted, place)):
            return found
    return None


async def pass_stages(run: Run, gated: Gated) -> Gated:
    """Let a reply pass its stages, one after the other.

    Raises:
        Interrupted: The run is to end: nothing of the reply may be carried out.
    """
    stages, passes = (CALL_STAGES, OF_CALLS) if gated.reply.calls else (ANSWER_STAGES, OF_ANSWERS)
    for number, stage in enumerate(stages):
        if number:
            await checkpoint(run)
        if not (stage.name in IDLE and IDLE[stage.name](run.setup)):
            gated = await passes[stage.name](run, gated)
    run.raise_if_interrupted()
    return gated
