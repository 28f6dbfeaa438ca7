"""Calls that wait: for input that their server needs from people, or for the result of a deferred tool.

If an MCP server needs input, people are asked, and the call is repeated with their answers. The protocol (2026-07-28)
requires this, so no activity waits for a person, and a dead worker loses nothing. Servers with an earlier protocol are
adapted to it. People can decline each request. A request without an answer within a day counts as declined.

A deferred tool starts work elsewhere, and its call waits for the result as for an answer of a person:

1. A question for the result opens first, because quick work may be done before the activity that starts it returns.
2. If the tool has a start, an activity with the id of the call and `.d0` carries it out.
3. `complete_tool_call`, the expiry or the end of the run ends the wait. The wait needs one timer and no slot.
4. An activity with the id of the call records its end. So every reader of a history finds the result, the failure or
   the expiry as for any other call. The activity refuses an invalid result, and the call continues to wait.
"""

import asyncio

from orga.workflows.decisions.control.interventions import with_refused_signal
from orga.workflows.decisions.control.questions import build_question, find_question
from orga.workflows.decisions.tool_calls.call_questions import (
    ASKED_TOO_OFTEN,
    INPUT_EXPIRES_S,
    LOOKUP_CANNOT_ASK,
    NO,
    field_value,
    input_options,
    input_question_text,
    result_question,
    with_awaited_result,
    with_result_expired,
)
from orga.workflows.decisions.tool_calls.calls import cancelled_outcome, refused_outcome
from orga.workflows.decisions.tool_calls.recovery import with_recovery_note
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.attempt import CallIdentity, FailedCall, execute_attempt, report_completion
from orga.workflows.phases.control.ask_people import ask_for_answer, ask_people, close_question
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.gate import AllowedCall
from orga.workflows.types.questions import (
    MAX_INPUT_ROUNDS,
    AskedInput,
    AskedInputs,
    Completion,
    FormField,
    GivenInputs,
    Question,
)
from orga.workflows.types.tool_calls.gate import INPUT_SUFFIX, START_SUFFIX, Verdict
from orga.workflows.types.tool_calls.recovery import Outcome
from orga.workflows.types.tool_calls.tools import INVALID_RESULT, Deferral


async def execute_with_inputs(run: Run, allowed: AllowedCall, identity: CallIdentity) -> Outcome | FailedCall:
    """Carry out the call, and repeat it with the input of people as long as its server asks for some."""
    first = await execute_attempt(run, allowed, identity)
    if isinstance(first, Outcome) or first.asked is None:
        return first
    if identity.is_before_reasoning:
        return first.with_remark(LOOKUP_CANNOT_ASK)
    last = await _repeat_with_inputs(run, allowed, identity, first)
    if last is first:  # the call was cut short before it could be repeated
        return first
    how = "failed" if isinstance(last, FailedCall) else last.status
    run.change_state(with_recovery_note, allowed.call, "input", first.error, how)
    return last.without_result() if isinstance(last, Outcome) else last


async def _repeat_with_inputs(
    run: Run, allowed: AllowedCall, identity: CallIdentity, attempt: FailedCall
) -> Outcome | FailedCall:
    """Return the end of the last repetition, or the attempt itself if there was none."""
    for number in range(1, MAX_INPUT_ROUNDS + 1):
        if attempt.asked is None:
            return attempt
        place = f"{identity.activity_id}{INPUT_SUFFIX}{number}"
        try:
            given = await _InputForm(run, allowed, identity._replace(activity_id=place), attempt.asked).ask()
            confirmed = await gate.confirm_allowed(run, allowed, place)
        except (Interrupted, asyncio.CancelledError):
            return attempt
        if isinstance(confirmed, Verdict):  # policy has changed while the person decided
            return attempt.with_remark(refused_outcome(allowed.call, confirmed).text)
        allowed = confirmed
        repeated = await execute_attempt(run, allowed, identity._replace(activity_id=place, given=given))
        if isinstance(repeated, Outcome):
            return repeated
        attempt = repeated
    return attempt if attempt.asked is None else attempt.with_remark(ASKED_TOO_OFTEN)


class _InputForm:
    """The requests of a server for input, as questions to people, one for each field."""

    def __init__(self, run: Run, allowed: AllowedCall, identity: CallIdentity, asked: AskedInputs) -> None:
        self._run, self._identity, self._asked = run, identity, asked
        self._tool = allowed.call.name
        self._question_count = 0

    async def ask(self) -> GivenInputs:
        # the server needs the answers to its earlier requests again
        given = GivenInputs(state=self._asked.state, answers=self._asked.answers)
        for request in self._asked.inputs:
            given = given.with_answer(request.key, await self._values(request))
        return given

    async def _values(self, request: AskedInput) -> dict[str, object] | None:
        """Return the values by field, or None if a person declines. A request without fields is only confirmed."""
        if not request.fields:
            return None if await self._answer(request, None) in {None, NO} else {}
        values: dict[str, object] = {}
        for field in request.fields:
            problem = ""
            while True:
                if (answer := await self._answer(request, field, problem)) is None:
                    return None
                try:
                    value = field_value(field, answer)
                    break
                except ValueError as error:
                    problem = str(error)
            if value is not None:
                values[field.name] = value
        return values

    async def _answer(self, request: AskedInput, field: FormField | None, problem: str = "") -> str | None:
        """Return a person's answer, or None if it is declined or nobody answers in time.

        Raise Interrupted if the call is cut short.
        """
        self._question_count += 1
        question = build_question(
            f"{self._identity.activity_id}.{self._question_count}",
            input_question_text(self._asked.server, self._tool, request, field, problem),
            self._run.now,
            options=input_options(request, field),
            expires_s=INPUT_EXPIRES_S,
        )
        decided = await ask_for_answer(self._run, question, is_moot=self._identity.is_cut_short)
        if self._identity.is_cut_short():
            raise Interrupted
        return decided.result if decided.choice == "result" else None


async def execute_deferred(
    run: Run, allowed: AllowedCall, terms: Deferral, identity: CallIdentity
) -> Outcome | FailedCall:
    """Start the work of the call, and return its outcome once somebody has completed it."""
    question = result_question(allowed.call, terms, identity.key, identity.activity_id, run.now)
    run.change_state(with_awaited_result, question, run.now)
    if terms.has_start and (unstarted := await _start_work(run, allowed, identity, question)) is not None:
        return unstarted
    while True:
        try:
            decided = await ask_people(run, question, is_moot=identity.is_cut_short)
        except (Interrupted, asyncio.CancelledError):
            return cancelled_outcome(allowed.call, allowed.spec)
        if decided.is_open:  # the call is cut short
            return cancelled_outcome(allowed.call, allowed.spec)
        if decided.completion is None:
            run.change_state(with_result_expired, identity.key)
        completion = decided.completion or Completion()  # an empty one means: expired
        ended = await report_completion(run, allowed, identity, completion)
        problem = _result_problem(ended)
        run.checked_results[identity.key] = problem  # the update `complete_tool_call` waits for it and answers with it
        if not problem:
            return ended
        run.change_state(with_refused_signal, "complete_tool_call", problem, by=completion.by)
        run.change_state(with_awaited_result, question, run.now)


def _result_problem(ended: Outcome | FailedCall) -> str:
    """Return why the activity refused the result of a deferred call, or "" if it recorded the end of the call."""
    kind, _, problem = ended.error.partition(": ")
    return problem if isinstance(ended, FailedCall) and kind == INVALID_RESULT else ""


async def _start_work(
    run: Run, allowed: AllowedCall, identity: CallIdentity, question: Question
) -> Outcome | FailedCall | None:
    """Return the outcome if the work could not be started, or else None. A result that has arrived proves the start."""
    start = identity._replace(activity_id=f"{identity.activity_id}{START_SUFFIX}")
    started = await execute_with_inputs(run, allowed, start)
    if isinstance(started, Outcome) and started.status == "ok":
        return None
    waiting = find_question(run.state, question.question_id)
    if waiting is not None and waiting.completion is not None and not run.is_interrupted():
        return None
    close_question(run, waiting or question)
    return started
