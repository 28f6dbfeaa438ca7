"""Carries out a call. If its server needs input, people are asked, and the call is made once more with their answers.

The protocol (2026-07-28) wants exactly that, so no activity waits for a person, and a dead worker loses nothing. The
calls of servers with earlier protocols are made to fit. Each request can be declined. One without an answer in a day
counts as declined.
"""

from __future__ import annotations

import asyncio

from orga.workflows.decisions.control.questions import build_question
from orga.workflows.decisions.tool_calls.calls import refused_outcome
from orga.workflows.decisions.tool_calls.elicitation import (
    INPUT_EXPIRES_S,
    NO,
    field_value,
    input_options,
    input_question_text,
    unasked_text,
)
from orga.workflows.decisions.tool_calls.recovery import with_recovery_note
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.attempt import CallIdentity, FailedCall, execute_attempt
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.control.visibility import ask_for_answer, never
from orga.workflows.phases.gate import AllowedCall, GateResult
from orga.workflows.types.tool_calls.elicitation import (
    MAX_INPUT_ROUNDS,
    AskedInput,
    AskedInputs,
    FormField,
    GivenInputs,
)
from orga.workflows.types.tool_calls.gate import INPUT_SUFFIX, call_activity_id
from orga.workflows.types.tool_calls.recovery import Outcome


async def execute_with_inputs(run: Run, allowed: AllowedCall, identity: CallIdentity) -> Outcome | FailedCall:
    """Return the call's attempt, or the last one after people gave the input that its server asked for."""
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

    async def answer_of(one: AskedInput, field: FormField | None, problem: str = "") -> str | None:
        """Return a person's answer, or None if it is declined or nobody answers in time."""
        nonlocal questions
        questions += 1
        question = build_question(
            f"{identity.activity_id}.{questions}",
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
