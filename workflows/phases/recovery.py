"""Recovery: what a tool's config says to do once a call's attempts are used up; what stands in for it is a call too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, cast

from orga.workflows.decisions.tool_calls import recovery, repeated_calls
from orga.workflows.decisions.tool_calls.calls import failed, idempotency_key, not_run, refused, with_change
from orga.workflows.decisions.tool_calls.dispatch import has_room, over_budget, with_one_more
from orga.workflows.decisions.tool_calls.recovery import (
    Alternative,
    Asked,
    asked_again,
    cached,
    dead_lettered,
    escalation,
    from_fallback,
    given_up,
    not_retried,
    person_gave,
    with_alternative,
)
from orga.workflows.phases import gate, review_stages
from orga.workflows.phases.attempt import Failed, Place, execute_attempt
from orga.workflows.phases.control.run import CutShort, Interrupted
from orga.workflows.phases.control.visibility import ask
from orga.workflows.phases.delegation import execute_delegate
from orga.workflows.phases.gate import AllowedCall, GateResult
from orga.workflows.phases.run import Run, show_dead_letters
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Resolution
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.recovery import DeadLetter, Outcome, Recovery, RecoveryStrategy


async def execute_once(run: Run, permitted: AllowedCall, place: Place) -> Outcome | Failed:
    """Carry the call out once. A tool named `delegate` of an agent without delegates is a tool like others."""
    if loop_tool(permitted.call.name).is_run and run.setup.delegates:
        return await execute_delegate(run, permitted, place)
    return await execute_attempt(run, permitted, place)


class Case(NamedTuple):
    """A call whose attempts are used up, and what is to be done about it."""

    permitted: AllowedCall
    place: Place
    failure: Failed
    settings: Recovery
    made: list[Alternative]
    """The calls in place of it that were judged, as they end."""


async def first_that_works(run: Run, case: Case) -> Outcome | None:
    """Call the alternatives in order, each through the gate; never after an effect that may have happened."""
    place, call = case.place, case.permitted.call
    if case.failure.is_unknown:
        return None
    is_cut_short = place.is_cut_short or run.is_interrupted
    for number, name in enumerate(case.settings.alternatives):
        there = Place(f"{place.activity_id}.f{number}", "", is_cut_short)
        begun = await _gate_fallback(run, call.with_name(name), there, is_cut_short)
        if isinstance(begun, Outcome):
            _take_in(run, case, Alternative(there.activity_id, begun), is_begun=False)
            continue
        run.change(with_one_more)
        key = idempotency_key(run.state.origin, there.activity_id, begun.call)
        attempt = await execute_once(run, begun, Place(there.activity_id, key))
        outcome = attempt if isinstance(attempt, Outcome) else attempt.outcome(begun.call)
        _take_in(run, case, Alternative(there.activity_id, outcome), is_begun=True)
        answer = _answer(case, name, attempt)
        if answer is not None:
            return with_change(answer, begun.verdict)
    return None


async def _gate_fallback(run: Run, call: ToolCall, place: Place, is_cut_short: CutShort) -> AllowedCall | Outcome:
    """Return the call as it may be made, or why it is not: gate, stages and `max_tool_calls` count for it, too."""
    if not has_room(run.state):
        return over_budget(run.state, call)
    try:
        (result,) = await gate.judge_calls(run, (call,), (place.activity_id,), "fallback", is_cut_short)
        permitted = result.permitted
        if is_cut_short():
            return not_run(call)
        if permitted is None:
            return refused(call, result.verdict)
        if why := await _find_objection(run, permitted, place):
            return not_run(call, why)
    except Interrupted:
        return not_run(call)
    return permitted if has_room(run.state) else over_budget(run.state, call)


async def _find_objection(run: Run, permitted: AllowedCall, place: Place) -> str:
    """Return why it may not stand in, or ""; before the first reasoning step there are no stages: it must only read."""
    if place.is_before_reasoning:
        return "" if permitted.spec.effect == "read_only" else "it is no lookup"
    return "it was turned down" if await review_stages.objection(run, permitted, place.activity_id) else ""


def _take_in(run: Run, case: Case, alternative: Alternative, *, is_begun: bool) -> None:
    case.made.append(alternative)
    run.change(with_alternative, alternative, is_begun=is_begun)


def _answer(case: Case, name: str, attempt: Outcome | Failed) -> Outcome | None:
    """Return what the alternative made of the call; None where the next one may be tried."""
    call, error = case.permitted.call, case.failure.error
    if isinstance(attempt, Failed):
        if not attempt.is_unknown:
            return None
        told = f"{error}; {name} was called instead: {attempt.error}"
        return failed(call, told, is_unknown=True, took_effect=attempt.took_effect).with_by(name)
    if attempt.status == "ok":
        answer = Outcome(call=call, status="ok", text=f"{error}\n{attempt.text}", by=name)
        return answer.with_words(before=from_fallback(name))
    return attempt.with_call(call) if attempt.status == "cancelled" else None


async def recover(run: Run, permitted: AllowedCall, place: Place, failure: Failed) -> Outcome:
    """Return the outcome of a call that failed."""
    settings = recovery.recovery_of(permitted.spec, run.config)
    strategy = _STRATEGIES.get(settings.strategy)
    if place.is_before_reasoning and settings.strategy in _ASKING:
        strategy = None
    if strategy is None:
        return failure.outcome(permitted.call)
    case = Case(permitted, place, failure, settings, [])
    try:
        outcome = await strategy(run, case)
    except asyncio.CancelledError:
        if case.made:
            _note(run, case, "cancelled")
        raise
    _note(run, case, outcome.status if outcome else "failed")
    return outcome or failure.outcome(permitted.call)


def _note(run: Run, case: Case, outcome: str) -> None:
    error = f"{case.failure.error}{case.failure.unclear}"
    run.change(recovery.triggered, case.permitted.call, case.settings.strategy, error, outcome, calls=case.made)


async def _cached(run: Run, case: Case) -> Outcome | None:
    found = recovery.good_result(run.state, case.permitted.call, case.settings, run.now)
    if found is None or case.failure.is_unknown:
        return None
    text, age_s = found
    outcome = Outcome(call=case.permitted.call, status="ok", text=f"{case.failure.error}\n{text}")
    return outcome.with_words(before=cached(age_s))


async def _by_the_model(run: Run, case: Case) -> Outcome | None:
    if not case.failure.was_run:
        return None
    run.change(recovery.with_failure, case.permitted.spec.name)
    left = recovery.tries_left(run.state, case.permitted.spec) or 0
    outcome = case.failure.outcome(case.permitted.call)
    if left and case.failure.is_unknown:
        return outcome  # it must not be made again: nothing to correct
    told = given_up(case.permitted.spec.name) if left == 0 else asked_again(left)
    return outcome.with_words(after=f"\n{told}")


async def _escalate(run: Run, case: Case) -> Outcome | None:
    """Ask a person as often as a retry that the person wants fails."""
    permitted, failure, retries = case.permitted, case.failure, 0
    call = permitted.call
    try:
        while True:
            question_id = f"call-{case.place.activity_id}-{retries}"
            failed_call = Asked(call, question_id, failure.error, run.now, failure.unclear)
            asked = await ask(run, escalation(run.state, failed_call, case.settings))
            decision = cast("Resolution", asked.resolution)  # what is never moot comes back decided
            if decision.choice == "skip":
                return failure.outcome(call)
            if decision.choice == "result":
                return Outcome(call=call, status="ok", text="").with_words(before=person_gave(decision.result))
            if decision.choice == "abort":
                run.change(recovery.escalated_to_an_end, call, decision)
                return failure.outcome(call)
            again = await gate.confirm(
                run, GateResult(call, permitted.verdict, permitted, place=case.place.activity_id)
            )
            if again.permitted is None:  # policy has changed while the person decided
                return failure.outcome(call).with_words(after=f"\n{not_retried(again.verdict.reason)}")
            permitted = permitted._replace(verdict=again.permitted.verdict)
            retries += 1
            attempt = await execute_once(run, permitted, Place(f"{case.place.activity_id}.r{retries}", case.place.key))
            if isinstance(attempt, Outcome):
                return attempt.without_result()
            failure = attempt.after(failure)
    except Interrupted:
        return failure.outcome(call)


async def _dead_letter(run: Run, case: Case) -> Outcome | None:
    letter = DeadLetter(
        letter_id=case.place.activity_id,
        call=case.permitted.call,
        key=case.place.key,
        error=f"{case.failure.error[: recovery.MAX_ERROR_CHARS]}{case.failure.unclear}",
        at=run.now,
    )
    run.change(recovery.with_dead_letter, letter)
    if letter not in run.state.dead_letters:
        return None
    show_dead_letters(run)
    outcome = case.failure.outcome(case.permitted.call)
    return outcome.with_words(after=f"\n{dead_lettered(letter)}")


_Strategy = Callable[[Run, Case], Awaitable[Outcome | None]]

_STRATEGIES: dict[RecoveryStrategy, _Strategy] = {
    "fallback": first_that_works,
    "cached_result": _cached,
    "llm_recovery": _by_the_model,
    "escalate": _escalate,
    "dead_letter": _dead_letter,
}
"""`retry` is an option of the activity; after it there is nothing more to do."""

_ASKING: frozenset[RecoveryStrategy] = frozenset({"escalate", "dead_letter"})
"""Not for what is only looked up before the first reasoning step: its failure is told, nobody has to act on it."""


async def resolve_stuck_steps(run: Run) -> None:
    """Wait until a person has decided about every step that asks for one; an ended run closes all its questions."""
    for question in [each for each in run.state.questions if each.kind == "escalation"]:
        with suppress(Interrupted):
            asked = await ask(run, question, may_roll_over=True)
            run.change(repeated_calls.with_resolved_step, asked)
