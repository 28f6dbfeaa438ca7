"""Questions of the review stages: approvals of calls, and a larger budget of tool calls.

Calls that need approval are held until each has an answer. Then they are judged once more, and so are calls that were
allowed before the run was paused.
"""

from __future__ import annotations

from temporalio import workflow

from orga.workflows.decisions import limits
from orga.workflows.decisions.control.interventions import with_abort
from orga.workflows.decisions.tool_calls import approvals, dispatch
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run, ask_for_budget
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.control.visibility import ask_people, withdraw_question
from orga.workflows.phases.gate import GatedReply, GateResult
from orga.workflows.types.control import Stop
from orga.workflows.types.questions import Answer, Item
from orga.workflows.types.tool_calls.gate import Purpose

MAX_ROUNDS = 5
"""Questions about one call because the policy set changed while a person decided."""


async def approve_reply(run: Run, gated: GatedReply) -> GatedReply:
    """Return the reply once none of it waits for a person. While it waits, the run may continue as new."""
    is_asked = any(result.verdict.decision == "approval" for result in gated.results)
    results = await ask_approval(run, gated.results, str(run.state.iteration), may_continue_as_new=True)
    return gated._replace(results=results, held_up_s=run.paused_seconds(), is_answered=is_asked)


async def ask_approval(
    run: Run,
    results: tuple[GateResult, ...],
    request_id: str,
    purpose: Purpose = "reply",
    *,
    may_continue_as_new: bool = False,
) -> tuple[GateResult, ...]:
    """Return the results once no call waits for a person.

    An approval is bound to the call, its arguments and the policy set: the call is judged once more, with the
    approver's name. If the set has changed meanwhile, people are asked again. Allowed calls of the same reply are
    judged again too. `request_id` is the iteration or place that is asked about, which the ids of the question and of
    its items build on.

    Raises:
        Interrupted: The run ends first. A run that is ending asks nobody.
    """
    for round_number in range(MAX_ROUNDS):
        held = [index for index, result in enumerate(results) if result.verdict.decision == "approval"]
        if not held:
            break
        if run.is_interrupted():
            if may_continue_as_new:
                withdraw_question(run, "approval")
            raise Interrupted
        may_go = may_continue_as_new and not round_number
        items = await _ask_about(
            run, results, held, f"{request_id}.{round_number}" if round_number else request_id, may_go
        )
        results = await _judge_decided(run, results, items, purpose)
    if may_continue_as_new:
        withdraw_question(run, "approval")
    return results


async def _ask_about(
    run: Run, results: tuple[GateResult, ...], held: list[int], request_id: str, may_continue_as_new: bool
) -> dict[int, Item]:
    """Ask a person about the calls at these indexes, all in one question."""
    items = [
        approvals.approval_item(
            run.state,
            f"{request_id}.{index}",
            results[index].judged_call,
            results[index].verdict,
            run.now,
            occasion=occasion_id(),
            place=results[index].place,
        )
        for index in held
    ]
    question = approvals.approval_question(items, f"approval-{request_id}", run.now)
    if may_continue_as_new:
        withdraw_question(run, "approval", question.question_id)
    asked = await ask_people(run, question, may_continue_as_new=may_continue_as_new)
    return dict(zip(held, asked.items, strict=True))


def occasion_id() -> str:
    """Return an id of this one request. The server reseeds the random generator with each reset, and a replay repeats
    it.
    """
    return f"{workflow.random().getrandbits(64):016x}"


async def _judge_decided(
    run: Run, results: tuple[GateResult, ...], items: dict[int, Item], purpose: Purpose
) -> tuple[GateResult, ...]:
    found = dict(enumerate(results)) | await _judge_waiting_calls(run, results, purpose)
    for index, item in items.items():
        answer = item.answer
        if answer is None or not answer.approved:
            why = (answer and answer.reason) or "an approver denied it"
            found[index] = gate.with_denial(results[index], f"not approved: {why}")
        else:
            found[index] = await _judge_approved(run, results[index], answer, purpose)
    return tuple(found.values())


async def _judge_approved(run: Run, result: GateResult, answer: Answer, purpose: Purpose) -> GateResult:
    """Judge a call as a person approved it. If it is invalid, the person's mistake is no denial: it is held again."""
    held = result.verdict
    if answer.arguments is not None:
        result = result._replace(verdict=held.with_person_arguments(answer.arguments, answer.approver))
    judged = await gate.judge_approved(run, result, answer.approver, purpose)
    if judged.verdict.decision != "invalid":
        return judged
    return judged._replace(verdict=held.with_reason(f"as {answer.approver} approved it: {judged.verdict.reason}"))


async def _judge_waiting_calls(run: Run, results: tuple[GateResult, ...], purpose: Purpose) -> dict[int, GateResult]:
    """Judge the calls that waited with the held ones: calls that were allowed days ago may be forbidden now.

    One that a person approved in an earlier round is judged with the approver's name, so that nobody is asked again.
    """
    permitted = {index: each.permitted for index, each in enumerate(results) if each.permitted is not None}
    approvers = {index: allowed.approver for index, allowed in permitted.items() if allowed.approver}
    found = {
        index: await gate.judge_approved(run, results[index], approver, purpose)
        for index, approver in approvers.items()
    }
    others = [index for index in permitted if index not in approvers]
    if others:
        again = await gate.judge_again(run, tuple(results[index] for index in others), purpose)
        found |= dict(zip(others, again, strict=True))
    return found


async def confirm_when_resumed(run: Run, result: GateResult) -> GateResult:
    """Return the result that applies once the run is no longer paused. Raise Interrupted if the run ends first."""
    if not run.state.paused:
        return result
    await workflow.wait_condition(lambda: not run.state.paused or run.is_interrupted())
    return await gate.confirm_call(run, result)


async def ask_for_calls(run: Run, gated: GatedReply) -> GatedReply:
    """Ask for a larger budget if there are more tool calls than it allows. Otherwise the excess calls are not run."""
    calls = gated.allowed_calls
    limit: Stop = ("max_iterations", f"limit of {run.config.max_tool_calls} tool calls")
    if dispatch.exceeds_call_budget(run.state, calls) and limits.can_ask_for_budget(run.state, limit):
        declined = await ask_for_budget(
            run,
            limit,
            lambda: not dispatch.exceeds_call_budget(run.state, calls),
            may_continue_as_new=not gated.is_answered,
        )
        if declined is not None and declined[0] == "aborted":
            run.change_state(with_abort, declined[1])
    withdraw_question(run, "budget")
    run.change_state(dispatch.with_over_budget, dispatch.exceeds_call_budget(run.state, calls))
    return gated
