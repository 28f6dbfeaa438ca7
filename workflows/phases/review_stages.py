"""The functions of the review stages, in the order of their table. A new stage is a function here and a row there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from orga.workflows.decisions import observe
from orga.workflows.decisions.review_stages import ANSWER_STAGES, CALL_STAGES, ReviewStage, StageName
from orga.workflows.decisions.tool_calls.decision import with_undecided_answer
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.control.visibility import pause_checkpoint
from orga.workflows.phases.critics import call_objection, review_answer, review_calls
from orga.workflows.phases.gate import AllowedCall, AnswerConclusion, GatedReply, GateResult, answer_conclusion
from orga.workflows.phases.review_questions import approve_reply, ask_for_calls
from orga.workflows.types.tool_calls.recovery import Outcome


async def check_answer(run: Run, gated: GatedReply) -> GatedReply:
    """Find the first problem of the answer."""
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
    """Confirm permitted calls if people have held up the run since then, because policy may have changed.

    Raises:
        Interrupted: The run ends first.
    """
    if not run.was_paused_since(since_s):
        return results
    found = list(results)
    for index, result in enumerate(found):
        if result.permitted is not None:
            run.raise_if_interrupted()
            found[index] = await gate.confirm_call(run, result)
    return tuple(found)


async def confirm_calls(run: Run, gated: GatedReply) -> GatedReply:
    """Judge permitted calls once more if people have held up the run since."""
    return gated._replace(results=await confirm_if_paused(run, gated.results, gated.held_up_s))


def conclude_reply(run: Run, gated: GatedReply) -> None:
    """Add a reply without calls, or one to repair, as the stages have concluded."""
    run.change_state(gated.conclusion or answer_conclusion(observe.with_answer, gated.reply))


StagePass = Callable[[Run, GatedReply], Awaitable[GatedReply]]
"""Narrows the permitted calls, or the conclusion about an answer. Only the gate makes a permission."""

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
"""Stages for a call that is not one of the reply's: an alternative, or one that is sent again."""


async def stage_objection(run: Run, allowed: AllowedCall, activity_id: str) -> Outcome | None:
    """Return the outcome if a stage rejects a call that is not one of the reply's, else None.

    Raises:
        Interrupted: The run ends first.
    """
    for stage in CALL_STAGES:
        if stage.name in STAGE_OBJECTIONS and (found := await STAGE_OBJECTIONS[stage.name](run, allowed, activity_id)):
            return found
    return None


ASKS_PEOPLE: Mapping[StageName, Callable[[Run, GatedReply], bool]] = {
    "approval": lambda run, gated: any(each.verdict.decision == "approval" for each in gated.results),
    "budget": lambda run, gated: run.config.max_tool_calls is not None,
}
"""True if a stage that only asks people may have a question."""


def _is_stage_idle(run: Run, stage: ReviewStage, gated: GatedReply) -> bool:
    """Return True if a stage has nothing to do. A question of the previous segment may have to be withdrawn."""
    if stage.needs:
        return not getattr(run.setup, stage.needs)
    return stage.name in ASKS_PEOPLE and not run.state.questions and not ASKS_PEOPLE[stage.name](run, gated)


async def pass_review_stages(run: Run, gated: GatedReply) -> GatedReply:
    """Pass a reply through its stages in order. If it raises Interrupted, no call of the reply may be carried out."""
    stages, passes = (CALL_STAGES, CALL_STAGE_PASSES) if gated.reply.calls else (ANSWER_STAGES, ANSWER_STAGE_PASSES)
    for number, stage in enumerate(stages):
        if number:
            await pause_checkpoint(run)
        if not _is_stage_idle(run, stage, gated):
            gated = await passes[stage.name](run, gated)
    run.raise_if_interrupted()
    return gated
