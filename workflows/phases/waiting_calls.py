"""Calls that wait: for input that their server needs from people, or for the result of a deferred tool.

If an MCP server needs input, people are asked, and the call is repeated with their answers. The protocol (2026-07-28)
requires this, so no activity waits for a person, and a dead worker loses nothing. Servers with an earlier protocol are
adapted to it. People can decline each request. A request without an answer within a day counts as declined.

A deferred tool starts work elsewhere, and its call waits for the result as for an answer of a person:

1. A question for the result is open from the beginning, because quick work may be done before its start has returned.
2. If the tool has a start, an activity with the id of the call and `.d0` carries it out.
3. `complete_tool_call`, the expiry or the end of the run ends the wait. The wait needs one timer and no slot.
4. An activity with the id of the call records its end. So every reader of a history finds the result, the failure or
   the expiry as for any other call. The activity refuses an invalid result, and the call continues to wait.
"""

import asyncio

from orga.workflows.decisions.control.interventions import with_refused_signal
from orga.workflows.decisions.control.questions import build_question, find_question
from orga.workflows.decisions.tool_calls.call_questions import (
    INPUT_EXPIRES_S,
    NO,
    field_value,
    input_options,
    input_question_text,
    result_question,
    unasked_text,
    with_awaited_result,
    with_result_expired,
)
from orga.workflows.decisions.tool_calls.calls import cancelled_outcome, refused_outcome
from orga.workflows.decisions.tool_calls.recovery import with_recovery_note
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.attempt import CallIdentity, FailedCall, execute_attempt, report_completion
from orga.workflows.phases.control.ask_people import ask_for_answer, ask_people, close_question
from orga.workflows.phases.control.run import Interrupted, never
from orga.workflows.phases.gate import AllowedCall, GateResult
from orga.workflows.types.questions import (
    MAX_INPUT_ROUNDS,
    AskedInput,
    AskedInputs,
    Completion,
    FormField,
    GivenInputs,
    Question,
)
from orga.workflows.types.tool_calls.gate import INPUT_SUFFIX, START_SUFFIX, call_activity_id
from orga.workflows.types.tool_calls.recovery import Outcome
from orga.workflows.types.tool_calls.tools import INVALID_RESULT


async def execute_with_inputs(run: Run, allowed: AllowedCall, identity: CallIdentity) -> Outcome | FailedCall:
    """Carry out the call, and repeat it with the input of people as long as its server asks for some."""
    first = attempt = await execute_attempt(run, allowed, identity)
    number = 0
    while isinstance(attempt, FailedCall) and attempt.asked is not None:
        if number == MAX_INPUT_ROUNDS or identity.is_before_reasoning:
            attempt = attempt._replace(error=f"{attempt.error}; {unasked_text(number)}")
            break
        number += 1
        place = f"{identity.activity_id}{INPUT_SUFFIX}{number}"
        try:
            given = await _ask_inputs(run, allowed, identity._replace(activity_id=place), attempt.asked)
            if identity.is_cut_short is not None and identity.is_cut_short():
                break
            judged = GateResult(allowed.call, allowed.verdict, allowed, place=call_activity_id(place))
            again = await gate.confirm_call(run, judged)
        except (Interrupted, asyncio.CancelledError):
            break
        if again.permitted is None:  # policy has changed while the person decided
            attempt = attempt._replace(error=f"{attempt.error}; {refused_outcome(allowed.call, again.verdict).text}")
            break
        allowed = allowed._replace(verdict=again.permitted.verdict)
        attempt = await execute_attempt(run, allowed, identity._replace(activity_id=place, given=given))
    if not number or attempt is first or not isinstance(first, FailedCall):
        return attempt
    how = "failed" if isinstance(attempt, FailedCall) else attempt.status
    run.change_state(with_recovery_note, allowed.call, "input", first.error, how)
    return attempt.without_result() if isinstance(attempt, Outcome) else attempt


async def _ask_inputs(run: Run, allowed: AllowedCall, identity: CallIdentity, asked: AskedInputs) -> GivenInputs:
    given, questions = GivenInputs(state=asked.state, answers=asked.answers), 0

    async def answer_of(request: AskedInput, field: FormField | None, problem: str = "") -> str | None:
        """Return a person's answer, or None if it is declined or nobody answers in time."""
        nonlocal questions
        questions += 1
        question = build_question(
            f"{identity.activity_id}.{questions}",
            input_question_text(asked.server, allowed.call.name, request, field, problem),
            run.now,
            options=input_options(request, field),
            expires_s=INPUT_EXPIRES_S,
        )
        decided = await ask_for_answer(run, question, is_moot=identity.is_cut_short or never)
        return decided.result if decided.choice == "result" else None

    async def values_of(request: AskedInput) -> dict[str, object] | None:
        if not request.fields:
            return None if await answer_of(request, None) in {None, NO} else {}
        values, problem, left = dict[str, object](), "", list(request.fields)
        while left:
            if (answer := await answer_of(request, left[0], problem)) is None:
                return None
            try:
                value, problem = field_value(left[0], answer), ""
            except ValueError as error:
                problem = str(error)
                continue
            values |= {} if value is None else {left[0].name: value}
            left.pop(0)
        return values

    for request in asked.inputs:
        given = given.with_answer(request.key, await values_of(request))
    return given


async def execute_deferred(run: Run, allowed: AllowedCall, identity: CallIdentity) -> Outcome | FailedCall:
    """Start the work of the call, and return its outcome once somebody has completed it."""
    if (terms := allowed.spec.deferred) is None:
        return await execute_with_inputs(run, allowed, identity)
    question = result_question(allowed.call, terms, identity.key, identity.activity_id, run.now)
    run.change_state(with_awaited_result, question, run.now)
    if terms.has_start and (failed := await _start_work(run, allowed, identity, question)) is not None:
        return failed
    while True:
        try:
            decided = await ask_people(run, question, is_moot=identity.is_cut_short or never)
        except (Interrupted, asyncio.CancelledError):
            return cancelled_outcome(allowed.call, allowed.spec)
        if decided.is_open:  # the call is cut short
            return cancelled_outcome(allowed.call, allowed.spec)
        if decided.completion is None:
            run.change_state(with_result_expired, identity.key)
        ended = await report_completion(run, allowed, identity, decided.completion or Completion())
        if not isinstance(ended, FailedCall) or not ended.error.startswith(f"{INVALID_RESULT}: "):
            run.checked_results[identity.key] = ""
            return ended
        why = ended.error.removeprefix(f"{INVALID_RESULT}: ")
        by = decided.completion.by if decided.completion else ""
        run.change_state(with_refused_signal, "complete_tool_call", why, by=by)
        run.change_state(with_awaited_result, question, run.now)
        run.checked_results[identity.key] = why


async def _start_work(
    run: Run, allowed: AllowedCall, identity: CallIdentity, question: Question
) -> Outcome | FailedCall | None:
    """Return the outcome if the work could not be started, or else None. A result that is there proves the start."""
    begin = identity._replace(activity_id=f"{identity.activity_id}{START_SUFFIX}")
    started = await execute_with_inputs(run, allowed, begin)
    if isinstance(started, Outcome) and started.status == "ok":
        return None
    waiting = find_question(run.state, question.question_id)
    if waiting is not None and waiting.completion is not None and not run.is_interrupted():
        return None
    close_question(run, waiting or question)
    return started
