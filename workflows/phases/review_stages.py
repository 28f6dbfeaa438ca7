"""The functions of the review stages. The table in `decisions/review_stages.py` has their order and conditions."""

from collections.abc import Awaitable, Callable, Mapping

from orga.workflows.decisions import limits, observe
from orga.workflows.decisions.control.interventions import with_abort
from orga.workflows.decisions.review_stages import ANSWER_STAGES, CALL_STAGES, ReviewStage, StageName
from orga.workflows.decisions.tool_calls import call_questions, dispatch
from orga.workflows.decisions.tool_calls.decision import with_undecided_answer
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run, ask_for_budget
from orga.workflows.phases.control.ask_people import ask_people, withdraw_question
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.control.visibility import pause_checkpoint
from orga.workflows.phases.critics import review_answer, review_calls
from orga.workflows.phases.gate import GatedReply, GateResult, answer_conclusion, permitted_calls
from orga.workflows.types.control import Stop
from orga.workflows.types.questions import Item, ItemDecision
from orga.workflows.types.tool_calls.gate import Purpose

MAX_ROUNDS = 5
"""The most questions about one call. A question is repeated if the policy set changed while a person decided."""


async def _approve_reply(run: Run, gated: GatedReply) -> GatedReply:
    """Return the reply once no part of it waits for a person. During the wait, the run may continue as new."""
    is_asked = bool(_held_indexes(gated.results))
    results = await ask_approval(run, gated.results, str(run.state.iteration), may_continue_as_new=True)
    return gated._replace(results=results, paused_s=run.paused_seconds(), is_answered=is_asked)


async def ask_approval(
    run: Run,
    results: tuple[GateResult, ...],
    request_id: str,
    purpose: Purpose = "reply",
    *,
    may_continue_as_new: bool = False,
) -> tuple[GateResult, ...]:
    """Return the results once no call waits for a person. A run that is ending asks nobody.

    An approval is bound to the call, its arguments and the policy set. An approved call is judged once more, with the
    approver's name. If the policy set has changed meanwhile, people are asked again. Allowed calls of the same reply
    are judged again, too. `request_id`, an iteration or a place, begins the ids of the question and its items.
    """
    for round_number in range(MAX_ROUNDS):
        held = _held_indexes(results)
        if not held:
            break
        if run.is_interrupted():
            if may_continue_as_new:
                withdraw_question(run, "approval")
            raise Interrupted
        if round_number == 0:
            items = await _ask_about(run, results, held, request_id, may_continue_as_new=may_continue_as_new)
        else:  # another segment would ask the first round again, which people have answered
            items = await _ask_about(run, results, held, f"{request_id}.{round_number}")
        results = await _judge_decided(run, results, items, purpose)
    if may_continue_as_new:
        withdraw_question(run, "approval")
    return results


def _held_indexes(results: tuple[GateResult, ...]) -> list[int]:
    return [index for index, result in enumerate(results) if result.verdict.decision == "approval"]


async def _ask_about(
    run: Run, results: tuple[GateResult, ...], held: list[int], request_id: str, *, may_continue_as_new: bool = False
) -> dict[int, Item]:
    """Ask people about the held calls, and return the items with their decisions, by the indexes of the calls."""
    items = [
        call_questions.approval_item(
            run.state,
            f"{request_id}.{index}",
            results[index].judged_call,
            results[index].verdict,
            run.now,
            occasion=gate.occasion_id(),
            place=results[index].place,
        )
        for index in held
    ]
    question = call_questions.approval_question(items, f"approval-{request_id}", run.now)
    if may_continue_as_new:
        withdraw_question(run, "approval", question.question_id)
    asked = await ask_people(run, question, may_continue_as_new=may_continue_as_new)
    return dict(zip(held, asked.items, strict=True))


async def _judge_decided(
    run: Run, results: tuple[GateResult, ...], items: dict[int, Item], purpose: Purpose
) -> tuple[GateResult, ...]:
    """Return the results after people have decided about the held calls, and policy once more about the others."""
    judged = dict(enumerate(results)) | await _judge_allowed_again(run, results, purpose)
    for index, item in items.items():
        answer = item.answer
        if answer is not None and answer.approved:
            judged[index] = await _judge_approved(run, results[index], answer, purpose)
        else:
            why = (answer.reason if answer is not None else "") or "an approver denied it"
            judged[index] = gate.with_denial(results[index], f"not approved: {why}")
    return tuple(judged.values())


async def _judge_approved(run: Run, result: GateResult, decision: ItemDecision, purpose: Purpose) -> GateResult:
    """Judge a call as a person approved it. Invalid arguments of the person are no denial: the call is held again."""
    held = result.verdict
    if decision.arguments is not None:
        result = result._replace(verdict=held.with_person_arguments(decision.arguments, decision.approver))
    judged = await gate.judge_approved(run, result, decision.approver, purpose)
    if judged.verdict.decision != "invalid":
        return judged
    return judged._replace(verdict=held.with_reason(f"as {decision.approver} approved it: {judged.verdict.reason}"))


async def _judge_allowed_again(run: Run, results: tuple[GateResult, ...], purpose: Purpose) -> dict[int, GateResult]:
    """Judge the allowed calls that waited together with held ones. Policy may deny now what it allowed days ago.

    If a person approved a call in an earlier round, the approver's name is passed on, so that nobody is asked again.
    """
    permitted = permitted_calls(results)
    found = {
        index: await gate.judge_approved(run, results[index], allowed.approver, purpose)
        for index, allowed in permitted.items()
        if allowed.approver
    }
    others = [index for index, allowed in permitted.items() if not allowed.approver]
    if others:
        again = await gate.judge_again(run, tuple(results[index] for index in others), purpose)
        found |= dict(zip(others, again, strict=True))
    return found


async def confirm_when_resumed(run: Run, result: GateResult) -> GateResult:
    """Return the result that applies once the run is no longer paused. Raise Interrupted if the run ends first."""
    if not run.state.paused:
        return result
    await run.wait_until_resumed()
    return await gate.confirm_call(run, result)


async def _ask_for_call_budget(run: Run, gated: GatedReply) -> GatedReply:
    """Ask for a larger budget if there are more tool calls than it allows. Otherwise the excess calls are not run."""
    calls = gated.allowed.values()
    limit = Stop("max_iterations", f"limit of {run.config.max_tool_calls} tool calls")

    def exceeds() -> bool:
        return dispatch.exceeds_call_budget(run.state, calls)

    if exceeds() and limits.can_ask_for_budget(run.state, limit):
        ending = await ask_for_budget(
            run, limit, is_raised=lambda: not exceeds(), may_continue_as_new=not gated.is_answered
        )
        if ending is not None and ending.reason == "aborted":
            run.change_state(with_abort, ending.detail)
    withdraw_question(run, "budget")
    run.change_state(dispatch.with_over_budget, exceeds())
    return gated


async def check_answer(run: Run, gated: GatedReply) -> GatedReply:
    """Return the reply with a conclusion if its answer cannot be accepted."""
    verdict, conclusion = gated.results[0].verdict, None
    if verdict.decision == "invalid":
        conclusion = answer_conclusion(observe.with_schema_mismatch, gated.reply, verdict)
    elif verdict.decision != "allow":
        conclusion = answer_conclusion(observe.with_denied_answer, gated.reply, verdict)
    elif run.state.due_decisions:
        conclusion = answer_conclusion(with_undecided_answer, gated.reply)
    elif not gated.classified.is_usable:
        conclusion = answer_conclusion(observe.with_repair, gated.classified)
    return gated._replace(conclusion=conclusion)


async def confirm_results_if_paused(
    run: Run, results: tuple[GateResult, ...], paused_before_s: float
) -> tuple[GateResult, ...]:
    """Confirm permitted calls if people have held up the run since then, because policy may have changed."""
    if not run.was_paused_since(paused_before_s):
        return results
    found = dict(enumerate(results))
    for index in permitted_calls(results):
        run.raise_if_interrupted()
        found[index] = await gate.confirm_call(run, results[index])
    return tuple(found.values())


async def confirm_calls(run: Run, gated: GatedReply) -> GatedReply:
    return gated._replace(results=await confirm_results_if_paused(run, gated.results, gated.paused_s))


def conclude_reply(run: Run, gated: GatedReply) -> None:
    """Add an answer, or a reply to repair, as the stages have concluded."""
    run.change_state(gated.conclusion or answer_conclusion(observe.with_answer, gated.reply))


StagePass = Callable[[Run, GatedReply], Awaitable[GatedReply]]
"""Returns the reply with fewer permitted calls, or with a conclusion about its answer. It never permits a call."""

CALL_STAGE_PASSES: Mapping[StageName, StagePass] = {
    "approval": _approve_reply,
    "budget": _ask_for_call_budget,
    "critics": review_calls,
    "confirmation": confirm_calls,
}

ANSWER_STAGE_PASSES: Mapping[StageName, StagePass] = {
    "approval": _approve_reply,
    "check": check_answer,
    "critics": review_answer,
}

_MAY_ASK: Mapping[StageName, Callable[[Run, GatedReply], bool]] = {
    "approval": lambda run, gated: bool(_held_indexes(gated.results)),
    "budget": lambda run, gated: run.config.max_tool_calls is not None,
}
"""Returns True if the stage may have a question about the reply. Only stages that ask people have it."""


def _is_stage_idle(run: Run, stage: ReviewStage, gated: GatedReply) -> bool:
    """Return True if a stage has nothing to do: no part of the setup that it needs, or nothing to ask people.

    A stage that asks people is not idle while there are questions, because it may have to withdraw one.
    """
    if stage.needs:
        return not getattr(run.setup, stage.needs)
    may_ask = _MAY_ASK.get(stage.name)
    return may_ask is not None and not run.state.questions and not may_ask(run, gated)


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
