"""Recovery of a call whose attempts are used up, by its tool's strategy, and decisions about repeated calls."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, cast

from temporalio import workflow

from orga.workflows.decisions.tool_calls import recovery, repeated_calls
from orga.workflows.decisions.tool_calls.calls import (
    failed_outcome,
    idempotency_key,
    not_run_outcome,
    with_argument_change,
)
from orga.workflows.decisions.tool_calls.dispatch import can_begin_another_call, over_budget_outcome, with_extra_call
from orga.workflows.decisions.tool_calls.recovery import (
    NO_LOOKUP,
    Alternative,
    EscalatedCall,
    alternative_problem,
    escalation_question,
    given_up_text,
    with_alternative,
)
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run, show_dead_letters
from orga.workflows.phases.attempt import CallIdentity, FailedCall
from orga.workflows.phases.control.ask_people import ask_people
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.critics import call_objection
from orga.workflows.phases.delegation import execute_tool_call
from orga.workflows.phases.gate import AllowedCall
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.names import ALTERNATIVES_CHECKED
from orga.workflows.types.questions import Resolution
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.recovery import DeadLetter, Outcome, Recovery, RecoveryStrategy


class RecoveryCase(NamedTuple):
    """A call whose attempts are used up, and the recovery to apply."""

    permitted: AllowedCall
    identity: CallIdentity
    failure: FailedCall
    settings: Recovery
    made: list[Alternative]
    """Alternatives that were judged, in the order in which they ended."""


async def try_alternatives(run: Run, case: RecoveryCase) -> Outcome | None:
    """Call the alternatives in order, each through the gate. After a possible effect, nothing more is called."""
    call, place = case.permitted.call, case.identity.activity_id
    if case.failure.is_unrepeatable:
        return None
    for number, name in enumerate(case.settings.alternatives):
        activity_id = f"{place}.f{number}"
        begun = await _gate_alternative(run, case, call.with_name(name), activity_id)
        if isinstance(begun, Outcome):
            _record_alternative(run, case, Alternative(activity_id, begun), is_begun=False)
            continue
        run.change_state(with_extra_call)
        key = idempotency_key(run.state.origin, activity_id, begun.call)
        attempt = await execute_tool_call(run, begun, CallIdentity(activity_id, key, case.identity.is_cut_short))
        outcome = attempt if isinstance(attempt, Outcome) else attempt.outcome(begun.call)
        _record_alternative(run, case, Alternative(activity_id, outcome), is_begun=True)
        answer = _alternative_outcome(case, name, attempt)
        if answer is not None:
            return with_argument_change(answer, begun.verdict)
    return None


async def _gate_alternative(run: Run, case: RecoveryCase, call: ToolCall, activity_id: str) -> AllowedCall | Outcome:
    """Return the call if it may be made, or else its outcome. Gate, critics and `max_tool_calls` apply to it."""
    is_cut_short = case.identity.is_cut_short
    if not can_begin_another_call(run.state):
        return over_budget_outcome(run.state, call)
    try:
        (result,) = await gate.judge_calls(run, (call,), (activity_id,), "fallback", is_cut_short)
        permitted = result.permitted
        if is_cut_short():
            return not_run_outcome(call)
        if permitted is None:
            return result.refusal
        if why := await _find_objection(run, case, permitted, activity_id):
            return not_run_outcome(call, why)
    except Interrupted:
        return not_run_outcome(call)
    return permitted if can_begin_another_call(run.state) else over_budget_outcome(run.state, call)


async def _find_objection(run: Run, case: RecoveryCase, allowed: AllowedCall, activity_id: str) -> str:
    """Return why the allowed call may not be an alternative, or ""."""
    problem = alternative_problem(allowed.spec, case.permitted.purpose)
    is_old_rule = problem == NO_LOOKUP  # it held before `ALTERNATIVES_CHECKED`, too
    if problem and (is_old_rule or workflow.patched(ALTERNATIVES_CHECKED)):
        return problem
    if case.identity.is_before_reasoning:  # it may only read, so no critic reviews it
        return ""
    return "it was turned down" if await call_objection(run, allowed, activity_id) else ""


def _record_alternative(run: Run, case: RecoveryCase, alternative: Alternative, *, is_begun: bool) -> None:
    case.made.append(alternative)
    run.change_state(with_alternative, alternative, is_begun=is_begun)


def _alternative_outcome(case: RecoveryCase, name: str, attempt: Outcome | FailedCall) -> Outcome | None:
    """Return the outcome of the original call after an alternative. None if the next one may be tried."""
    call, error = case.permitted.call, case.failure.error
    if isinstance(attempt, FailedCall):
        if not attempt.is_unrepeatable:
            return None
        text = f"{error}; {name} was called instead: {attempt.error}"
        return failed_outcome(call, text, is_unknown=True, took_effect=attempt.took_effect).with_substitute(name)
    if attempt.status == "ok":
        # reads: "[Fallback] NAME answered instead; the call failed: ERROR", and below it the text of NAME
        answer = Outcome(call=call, status="ok", text=f"{error}\n{attempt.text}", by=name)
        return answer.with_own_text(before=f"[Fallback] {name} answered instead; the call failed: ")
    return attempt.with_call(call) if attempt.status == "cancelled" else None


async def recover_call(run: Run, allowed: AllowedCall, identity: CallIdentity, failure: FailedCall) -> Outcome:
    settings = recovery.tool_recovery(allowed.spec, run.config)
    strategy = _STRATEGIES.get(settings.strategy)
    if strategy is None or (identity.is_before_reasoning and settings.strategy in _PERSON_STRATEGIES):
        return failure.outcome(allowed.call)
    case = RecoveryCase(allowed, identity, failure, settings, [])
    try:
        outcome = await strategy(run, case)
    except asyncio.CancelledError:
        if case.made:
            _note_recovery(run, case, "cancelled")
        raise
    _note_recovery(run, case, outcome.status if outcome else "failed")
    return outcome or failure.outcome(allowed.call)


def _note_recovery(run: Run, case: RecoveryCase, outcome: str) -> None:
    error = f"{case.failure.error}{case.failure.effect_warning}"
    run.change_state(
        recovery.with_recovery_note, case.permitted.call, case.settings.strategy, error, outcome, calls=case.made
    )


async def _use_cached_result(run: Run, case: RecoveryCase) -> Outcome | None:
    found = recovery.cached_good_result(run.state, case.permitted.call, case.settings, run.now)
    if found is None or case.failure.is_unrepeatable:
        return None
    outcome = Outcome(call=case.permitted.call, status="ok", text=f"{case.failure.error}\n{found.text}")
    return outcome.with_own_text(before=f"[Cached result, {found.age_s(run.now):.0f} s old] the call failed now: ")


async def _leave_to_model(run: Run, case: RecoveryCase) -> Outcome | None:
    if not case.failure.was_run:
        return None
    run.change_state(recovery.with_model_retry_failure, case.permitted.spec.name)
    outcome = case.failure.outcome(case.permitted.call)
    left = recovery.tries_left(run.state, case.permitted.spec)
    if not left:
        hint = given_up_text(case.permitted.spec.name)
    elif case.failure.is_unrepeatable:  # there is nothing to correct
        return outcome
    else:
        hint = f"[Recovery] Correct the call or choose another way; {left} more failures of this tool are taken."
    return outcome.with_own_text(after=f"\n{hint}")


async def _escalate_to_person(run: Run, case: RecoveryCase) -> Outcome | None:
    """Ask a person what to do. If the person wants a retry and it fails, ask again."""
    permitted, failure, retries = case.permitted, case.failure, 0
    call = permitted.call
    try:
        while True:
            question_id = f"call-{case.identity.activity_id}-{retries}"
            failed_call = EscalatedCall(call, question_id, failure.error, run.now, failure.effect_warning)
            asked = await ask_people(run, escalation_question(run.state, failed_call, case.settings))
            # without `is_moot`, `ask_people` returns only decided questions
            decision = cast("Resolution", asked.resolution)
            if decision.choice == "skip":
                return failure.outcome(call)
            if decision.choice == "result":
                given = f"[Result from the operator]\n{decision.result}"
                return Outcome(call=call, status="ok", text="").with_own_text(before=given)
            if decision.choice == "abort":
                run.change_state(recovery.with_end_by_escalation, call, decision)
                return failure.outcome(call)
            confirmed = await gate.confirm_allowed(run, permitted, case.identity.activity_id)
            if isinstance(confirmed, Verdict):  # policy has changed while the person decided
                denied = f"[Policy denied] An operator wanted it called again: {confirmed.reason}"
                return failure.outcome(call).with_own_text(after=f"\n{denied}")
            permitted = confirmed
            retries += 1
            identity = case.identity._replace(activity_id=f"{case.identity.activity_id}.r{retries}")
            attempt = await execute_tool_call(run, permitted, identity)
            if isinstance(attempt, Outcome):
                return attempt.without_result()
            failure = attempt.after_earlier_failure(failure)
    except Interrupted:
        return failure.outcome(call)


async def _dead_letter(run: Run, case: RecoveryCase) -> Outcome | None:
    letter = DeadLetter(
        letter_id=case.identity.activity_id,
        call=case.permitted.call,
        key=case.identity.key,
        error=f"{case.failure.error[: recovery.MAX_ERROR_CHARS]}{case.failure.effect_warning}",
        at=run.now,
    )
    run.change_state(recovery.with_dead_letter, letter)
    if letter not in run.state.dead_letters:  # there was no room for it
        return None
    show_dead_letters(run)
    outcome = case.failure.outcome(case.permitted.call)
    kept = f"[Dead letter] The call is kept as {letter.letter_id} for an operator to send again; go on without it."
    return outcome.with_own_text(after=f"\n{kept}")


_Strategy = Callable[[Run, RecoveryCase], Awaitable[Outcome | None]]

_STRATEGIES: dict[RecoveryStrategy, _Strategy] = {
    "fallback": try_alternatives,
    "cached_result": _use_cached_result,
    "llm_recovery": _leave_to_model,
    "escalate": _escalate_to_person,
    "dead_letter": _dead_letter,
}
"""`retry` is missing because it is an option of the activity."""

_PERSON_STRATEGIES: frozenset[RecoveryStrategy] = frozenset({"escalate", "dead_letter"})
"""Strategies that people act on. They do not apply to lookups before the first reasoning step."""


async def resolve_repeated_calls(run: Run) -> None:
    """Wait until a person has decided about each repeated call that was stopped. The run's end ends the wait."""
    for question in [each for each in run.state.questions if each.kind == "escalation"]:
        with suppress(Interrupted):
            asked = await ask_people(run, question, may_continue_as_new=True)
            run.change_state(repeated_calls.with_resolved_repeated_call, asked)
