"""The stages between a reply and its effects, as the table has them; one more is a function in its file, and a row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from orga.workflows.decisions import observe
from orga.workflows.decisions.review_stages import ANSWER_STAGES, CALL_STAGES, ReviewStage, StageName
from orga.workflows.decisions.tool_calls.decision import with_undecided_answer
from orga.workflows.phases import gate
from orga.workflows.phases.control.visibility import pause_checkpoint
from orga.workflows.phases.critique import call_objection, review_answer, review_calls
from orga.workflows.phases.gate import AllowedCall, AnswerConclusion, GatedReply, GateResult, answer_conclusion
from orga.workflows.phases.questions import approve_reply, ask_for_calls
from orga.workflows.phases.run import Run
from orga.workflows.types.tool_calls.recovery import Outcome


async def check_answer(run: Run, gated: GatedReply) -> GatedReply:
    """Find the first thing that is wrong with the answer."""
    return gated._replace(conclusion=_answer_problem(run, gated))


def _answer_problem(run: Run, gated: GatedReply) -> AnswerConclusion | None:
    verdict = gated.answer
    if verdict is None:
        return None
    if verdict.decision == "invalid":
        return answer_conclusion(observe.with_schema_mismatch, gated.classified, verdict)
    if verdict.decision != "allow":
        return answer_conclusion(observe.with_denied_answer, gated.reply, verdict)
    if run.state.due_decisions:
        return answer_conclusion(with_undecided_answer, gated.reply)
    if not gated.classified.is_usable:
        return answer_conclusion(observe.with_repair, gated.classified)
    return None


async def confirm_if_paused(run: Run, results: tuple[GateResult, ...], since_s: float) -> tuple[GateResult, ...]:
    """Confirm what is permitted, where people have held the run up since then: policy may have changed.

    Raises:
        Interrupted: The run is ended before.
    """
    if not run.was_held_up(since_s):
        return results
    found = list(results)
    for index, result in enumerate(found):
        if result.permitted is not None:
            run.raise_if_interrupted()
            found[index] = await gate.confirm_call(run, result)
    return tuple(found)


async def confirm_calls(run: Run, gated: GatedReply) -> GatedReply:
    """Judge once more what may be carried out, where people have held the run up since."""
    return gated._replace(results=await confirm_if_paused(run, gated.results, gated.held_up_s))


def conclude_reply(run: Run, gated: GatedReply) -> None:
    """Take a reply in that asks for no calls, or is to be repaired: an answer as the stages have it."""
    run.change(gated.conclusion or answer_conclusion(observe.with_answer, gated.reply))


StagePass = Callable[[Run, GatedReply], Awaitable[GatedReply]]
"""Narrows what may be carried out, or how an answer is taken in; none makes a permission but by the gate."""

CALL_STAGE_PASSES: Mapping[StageName, StagePass] = {
    "approval": approve_reply,
    "budget": ask_for_calls,
    "critics": review_calls,
    "confirmation": confirm_calls,
}

ANSWER_STAGE_PASSES: Mapping[StageName, StagePass] = {
    "approval": approve_reply,
    "check": check_answer,
    "critics": review_answer,
}

STAGE_OBJECTIONS: Mapping[StageName, Callable[[Run, AllowedCall, str], Awaitable[Outcome | None]]] = {
    "critics": call_objection
}
"""Of a call that is none of the reply's: it stands in for another, or is sent again."""


async def stage_objection(run: Run, permitted: AllowedCall, place: str) -> Outcome | None:
    """Return what becomes of a call that is none of the reply's, by the first stage that turns it down, or None.

    Raises:
        Interrupted: The run is ended before.
    """
    for stage in CALL_STAGES:
        if stage.name in STAGE_OBJECTIONS and (found := await STAGE_OBJECTIONS[stage.name](run, permitted, place)):
            return found
    return None


ASKS_PEOPLE: Mapping[StageName, Callable[[Run, GatedReply], bool]] = {
    "approval": lambda run, gated: any(each.verdict.decision == "approval" for each in gated.results),
    "budget": lambda run, gated: run.config.max_tool_calls is not None,
}
"""Of stages that only ask people: whether they may have something to ask."""


def _is_stage_idle(run: Run, stage: ReviewStage, gated: GatedReply) -> bool:
    """Return whether a stage has nothing to do; what the run before this one asked may have to be withdrawn."""
    if stage.needs:
        return not getattr(run.setup, stage.needs)
    return stage.name in ASKS_PEOPLE and not run.state.questions and not ASKS_PEOPLE[stage.name](run, gated)


async def pass_review_stages(run: Run, gated: GatedReply) -> GatedReply:
    """Let a reply pass its stages, one after the other.

    Raises:
        Interrupted: The run is to end: nothing of the reply may be carried out.
    """
    stages, passes = (CALL_STAGES, CALL_STAGE_PASSES) if gated.reply.calls else (ANSWER_STAGES, ANSWER_STAGE_PASSES)
    for number, stage in enumerate(stages):
        if number:
            await pause_checkpoint(run)
        if not _is_stage_idle(run, stage, gated):
            gated = await passes[stage.name](run, gated)
    run.raise_if_interrupted()
    return gated
