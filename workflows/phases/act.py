"""Act: runs the allowed calls in parallel. A tool's call is an activity named after the tool.

It also sends dead letters that an operator requeued, with their original keys. Each passes the gate like any call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from temporalio import workflow

from orga.workflows.decisions.control.questions import build_question
from orga.workflows.decisions.observe import with_outcomes, with_termination
from orga.workflows.decisions.result import with_shown_calls
from orga.workflows.decisions.tool_calls import decision, recovery, repeated_calls
from orga.workflows.decisions.tool_calls.calls import (
    idempotency_key,
    not_run_outcome,
    refused_outcome,
    with_argument_change,
)
from orga.workflows.decisions.tool_calls.decision import undecided_text, with_undecided_end
from orga.workflows.decisions.tool_calls.dispatch import unstarted_outcomes, with_attempts, with_begun_calls
from orga.workflows.decisions.tool_calls.recovery import with_succeeded_call
from orga.workflows.phases import gate, review_stages
from orga.workflows.phases.attempt import CallIdentity, FailedCall, task_outcome
from orga.workflows.phases.control.run import CutShort, Interrupted
from orga.workflows.phases.control.visibility import ask_for_answer, enter_phase, pause_checkpoint, phase_span
from orga.workflows.phases.gate import AllowedCall, GatedReply, GateResult
from orga.workflows.phases.questions import ask_approval, confirm_when_resumed
from orga.workflows.phases.recovery import execute_call_once, recover_call
from orga.workflows.phases.run import Run, show_dead_letters, show_first_calls
from orga.workflows.phases.saga import execute_saga
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import STOPPED_STEPS_COUNTED
from orga.workflows.types.tool_calls.loop_tools import ASK_USER, DECIDE, SAGA, TERMINATE, loop_tool
from orga.workflows.types.tool_calls.recovery import DeadLetter, Outcome

LoopToolHandler = Callable[[Run, AllowedCall, str], Awaitable[Outcome]]
"""Returns the outcome of an allowed call at its place."""


async def _end_run(run: Run, allowed: AllowedCall, _: str) -> Outcome:
    if undecided := run.state.due_decisions:
        run.change_state(with_undecided_end)
        feedback = f"[Not ended] {undecided_text(undecided)}"
        return Outcome(call=allowed.call, status="ok", text="").with_own_text(before=feedback)
    arguments = allowed.call.arguments
    run.change_state(with_termination, str(arguments.get("reason", "")), str(arguments.get("output", "")))
    news = "Guidance from the operator arrived" if run.state.inbox else "The operator has calls sent again"
    text = "[Ended]" if run.state.stop else f"[Not ended] {news}; take it into account."
    return Outcome(call=allowed.call, status="ok", text="").with_own_text(before=text)


async def _decide(run: Run, allowed: AllowedCall, activity_id: str) -> Outcome:
    """Return the outcome. A call that decides nothing is not run."""
    call = allowed.call
    try:
        name, decided = decision.decision_of_call(run.state, call)
    except ValueError as error:
        return not_run_outcome(call, str(error))
    run.change_state(decision.with_decision, activity_id, name, decided)
    return Outcome(call=call, status="ok", text="").with_own_text(
        before=f"[Decided] {name}: {decision.decision_text(decided)}"
    )


async def _ask_user(run: Run, allowed: AllowedCall, activity_id: str) -> Outcome:
    """Return a person's answer. If the person ends the run instead, the call is not run."""
    call, given = allowed.call, allowed.call.arguments
    if given.get("options") and given.get("default", "") not in {"", *given["options"]}:
        return not_run_outcome(call, "default: give one of the options")
    question = build_question(
        activity_id,
        str(given["question"]),
        run.now,
        activity_id=activity_id,
        options=given.get("options", ()),
        default=given.get("default", ""),
        expires_s=given.get("expires_s"),
    )
    try:
        decided = await ask_for_answer(run, question)
    except Interrupted:
        return not_run_outcome(call, "the run ended before anybody answered")
    if decided.choice == "skip":
        why = decided.reason or "the operator gives no answer"
        return Outcome(call=call, status="ok", text="").with_own_text(before=f"[No answer] {why}; go on without.")
    how = f"[Default answer: {decided.reason}]" if not decided.by and decided.reason else "[Answer of the operator]"
    return Outcome(call=call, status="ok", text=decided.result).with_own_text(before=f"{how}\n")


LOOP_TOOL_HANDLERS: Mapping[str, LoopToolHandler] = {TERMINATE: _end_run, DECIDE: _decide, ASK_USER: _ask_user}


class ExecutedReply(NamedTuple):
    """A reply with one outcome for each of its calls, in call order."""

    reply: Reply
    results: tuple[GateResult, ...]
    outcomes: tuple[Outcome, ...]


async def execute_reply(run: Run, gated: GatedReply, doing: str) -> ExecutedReply:
    """Carry out the allowed calls of a reply, and add their outcomes."""
    run.change_state(with_shown_calls, gated.reply.calls, [each.verdict for each in gated.results])
    enter_phase(run, doing)
    show_first_calls(run)
    with phase_span("act", run.state.iteration):
        acted = await execute_calls(run, gated)
    verdicts = tuple(each.verdict for each in acted.results)
    denied = repeated_calls.turned_down_calls(acted.outcomes, verdicts, "denied")
    invalid = repeated_calls.invalid_calls(acted.outcomes, verdicts)
    if repeated_calls.has_only_stopped_calls(acted.outcomes) and workflow.patched(STOPPED_STEPS_COUNTED):
        invalid.append(repeated_calls.ONLY_STOPPED_CALLS)
    run.change_state(with_outcomes, acted.reply, acted.outcomes, denied, invalid)
    run.change_state(with_attempts, acted.outcomes, run.now)
    return acted


async def execute_calls(run: Run, gated: GatedReply) -> ExecutedReply:
    """Run the allowed calls, at most `max_concurrent_tools` at a time. Every call gets an outcome, whatever happens."""
    iteration = run.state.iteration
    run.brought = 0
    places = [index for index, result in enumerate(gated.results) if result.permitted is not None]
    down = unstarted_outcomes(run.state, gated.allowed_calls)
    outcomes = {places[nth]: outcome for nth, outcome in down.items()}
    begun = [call for nth, call in enumerate(gated.allowed_calls) if nth not in down]
    run.change_state(with_begun_calls, begun)
    tasks: dict[int, asyncio.Task[Outcome]] = {}
    for index, result in enumerate(gated.results):
        if result.permitted is not None and index not in outcomes:
            tasks[index] = asyncio.create_task(execute_call(run, result.permitted, f"{iteration}.{index}"))
    plans = [task for index, task in tasks.items() if loop_tool(gated.results[index].call.name).is_plan]
    if tasks:
        await run.settle_tasks([task for task in tasks.values() if task not in plans], run.is_interrupted)
    if plans:  # sagas handle an interruption themselves, and need the time to undo their work
        await workflow.wait_condition(lambda: all(task.done() for task in plans))
    for index, result in enumerate(gated.results):
        if index in tasks and result.permitted is not None:
            outcomes[index] = with_argument_change(task_outcome(tasks[index], result.permitted), result.verdict)
        elif index not in outcomes:
            outcomes[index] = result.rejected or refused_outcome(result.call, result.verdict)
    return ExecutedReply(gated.reply, gated.results, tuple(outcomes[index] for index in range(len(gated.results))))


async def execute_call(
    run: Run,
    allowed: AllowedCall,
    activity_id: str,
    is_cut_short: CutShort | None = None,
    *,
    key: str | None = None,
) -> Outcome:
    """Return the outcome of the call, whatever happened to it.

    Args:
        run: The run.
        allowed: The call.
        activity_id: `<iteration>.<index>`. Iteration 0 is before the first reasoning step.
        is_cut_short: True if the call has to end. None: when the run is interrupted.
        key: Idempotency key, if the call has one already.
    """
    if by_the_loop := _ALL_LOOP_TOOL_HANDLERS.get(allowed.call.name):
        return await by_the_loop(run, allowed, activity_id)
    known = key or idempotency_key(run.state.origin, activity_id, allowed.call)
    place = CallIdentity(activity_id, known, is_cut_short)
    attempt = await execute_call_once(run, allowed, place)
    if isinstance(attempt, FailedCall):
        return await recover_call(run, allowed, place, attempt)
    if attempt.status == "ok":
        run.change_state(with_succeeded_call, allowed.spec, allowed.call, attempt.text, run.now)
    return attempt


async def _execute_saga(run: Run, allowed: AllowedCall, activity_id: str) -> Outcome:
    return await execute_saga(run, allowed, activity_id, execute_call)


_ALL_LOOP_TOOL_HANDLERS = {**LOOP_TOOL_HANDLERS, SAGA: _execute_saga}
"""Handlers including that of sagas, whose calls are carried out here."""


async def send_requeued_letters(run: Run) -> None:
    """Carry out the requeued letters one after the other. The model reads their outcomes.

    Raises:
        Interrupted: The run is to end. Letters that were not sent are kept.
    """
    for letter in run.state.waiting_letters:
        await pause_checkpoint(run, may_continue_as_new=True)
        await _send_letter(run, letter)


async def _send_letter(run: Run, letter: DeadLetter) -> None:
    place = f"{letter.letter_id}.q{run.state.iteration}"
    results = await gate.judge_calls(run, (letter.call,), (place,), "requeue")
    found = await ask_approval(run, results, place, "requeue", may_continue_as_new=True)
    result = await confirm_when_resumed(run, await _pass_review_stages(run, found[0], place))
    run.raise_if_interrupted()
    run.change_state(recovery.without_letter, letter.letter_id)
    if result.permitted is None:
        outcome = result.rejected or refused_outcome(letter.call, result.verdict)
    else:
        outcome = with_argument_change(await _execute_letter(run, result.permitted, place, letter), result.verdict)
    run.change_state(recovery.with_letter_answered, letter, outcome)
    show_dead_letters(run)


async def _pass_review_stages(run: Run, result: GateResult, activity_id: str) -> GateResult:
    """Return the result after the stages for a single call. If people held it up meanwhile, the call is judged once
    more.
    """
    if result.permitted is None:
        return result
    since_s = run.paused_seconds()
    if objection := await review_stages.stage_objection(run, result.permitted, activity_id):
        return result._replace(permitted=None, rejected=objection)
    (result,) = await review_stages.confirm_if_paused(run, (result,), since_s)
    return result


async def _execute_letter(run: Run, allowed: AllowedCall, activity_id: str, letter: DeadLetter) -> Outcome:
    key = recovery.kept_idempotency_key(letter, allowed.call)
    run.change_state(with_begun_calls, [allowed.call])
    task = asyncio.create_task(execute_call(run, allowed, activity_id, key=key))
    await run.settle_tasks([task], run.is_interrupted)
    return task_outcome(task, allowed)
