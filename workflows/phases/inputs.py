"""A call whose server needs input: a person is asked, and the call is made once more with the answer.

The protocol (2026-07-28) wants exactly that, so no activity waits for a person, and a dead worker loses nothing. Each
request can be declined. One without an answer in a day counts as declined.
"""

from __future__ import annotations

import asyncio

from orga.workflows.decisions.control.questions import build_question
from orga.workflows.decisions.tool_calls.inputs import (
    INPUT_EXPIRES_S,
    NO,
    field_value,
    input_options,
    input_question_text,
)
from orga.workflows.decisions.tool_calls.recovery import retry_denied_text, with_recovery_note
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.attempt import CallIdentity, FailedCall
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.control.visibility import ask_for_answer, never
from orga.workflows.phases.delegation import call_executor
from orga.workflows.phases.gate import AllowedCall, GateResult
from orga.workflows.types.tool_calls.inputs import (
    MAX_INPUT_ROUNDS,
    AskedInput,
    AskedInputs,
    FormField,
    GivenInputs,
)
from orga.workflows.types.tool_calls.recovery import Outcome


async def finish_with_inputs(
    run: Run, allowed: AllowedCall, identity: CallIdentity, attempt: Outcome | FailedCall
) -> Outcome | FailedCall:
    """Return the attempt, or the last one after people gave the input that the server asked for."""
    first = attempt
    for number in range(1, MAX_INPUT_ROUNDS + 1):
        if not isinstance(attempt, FailedCall) or (asked := attempt.asked) is None or identity.is_before_reasoning:
            break
        judged = GateResult(allowed.call, allowed.verdict, allowed, place=identity.activity_id)
        try:
            given = await _ask_inputs(run, allowed, identity, asked, number)
            again = await gate.confirm_call(run, judged)
        except (Interrupted, asyncio.CancelledError):
            break
        if identity.is_cut_short is not None and identity.is_cut_short():
            break
        if again.permitted is None:  # policy has changed while the person decided
            attempt = attempt._replace(error=retry_denied_text(again.verdict.reason))
            break
        allowed = allowed._replace(verdict=again.permitted.verdict)
        place = f"{identity.activity_id}.r{number}"
        next_one = identity._replace(activity_id=place, given=given)
        attempt = await call_executor(run, allowed.call)(run, allowed, next_one)
    if attempt is first or not isinstance(first, FailedCall):
        return attempt
    how = "failed" if isinstance(attempt, FailedCall) else attempt.status
    run.change_state(with_recovery_note, allowed.call, "input", first.error, how)
    return attempt.without_result() if isinstance(attempt, Outcome) else attempt


async def _ask_inputs(
    run: Run, allowed: AllowedCall, identity: CallIdentity, asked: AskedInputs, number: int
) -> GivenInputs:
    given, questions = GivenInputs(state=asked.state), 0

    async def answer_of(one: AskedInput, field: FormField | None, problem: str = "") -> str | None:
        """Return a person's answer, or None if it is declined or nobody answers in time."""
        nonlocal questions
        questions += 1
        question = build_question(
            f"{identity.activity_id}.i{number}.{questions}",
            input_question_text(asked.server, allowed.call.name, one, field, problem),
            run.now,
            options=input_options(one, field),
            expires_s=INPUT_EXPIRES_S,
        )
        decided = await ask_for_answer(run, question, is_moot=identity.is_cut_short or never)
        return decided.result if decided.choice == "result" else None

    async def values_of(one: AskedInput) -> dict[str, object] | None:
        if not one.fields:
            return None if await answer_of(one, None) in {None, NO} else {}
        values, problem, left = dict[str, object](), "", list(one.fields)
        while left:
            if (answer := await answer_of(one, left[0], problem)) is None:
                return None
            try:
                value, problem = field_value(left[0], answer), ""
            except ValueError as error:
                problem = str(error)
                continue
            values |= {} if value is None else {left[0].name: value}
            left.pop(0)
        return values

    for one in asked.inputs:
        given = given.with_answer(one.key, await values_of(one))
    return given
