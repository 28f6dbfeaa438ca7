"""Recovery: what a tool's config says to do once the attempts of a call are used up."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from workflows.decisions import recovery
from workflows.decisions.recovery_texts import (
    Asked,
    asked_again,
    cached,
    dead_lettered,
    escalation,
    given_up,
    not_retried,
    person_gave,
)
from workflows.phases import attributes, gate
from workflows.phases.alternatives import Case, first_that_works
from workflows.phases.attempt import Failed, Place
from workflows.phases.gate import AllowedCall, GateResult
from workflows.phases.interrupt import Interrupted
from workflows.phases.run import Run
from workflows.phases.tried import execute_once
from workflows.phases.waiting import ask_person
from workflows.types.dead_letters import DeadLetter
from workflows.types.outcome import Outcome
from workflows.types.recovery import RecoveryStrategy


async def recover(run: Run, permitted: AllowedCall, place: Place, failure: Failed) -> Outcome:
    """Return the outcome of a call that failed."""
    settings = recovery.recovery_of(permitted.spec, run.config)
    strategy = _STRATEGIES.get(settings.strategy)
    if place.is_before_reasoning and settings.strategy in _ASKING:
        strategy = None
    if strategy is None:
        return failure.outcome(permitted.call)
    case = Case(permitted, place, failure, settings)
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


async def _escalated(run: Run, case: Case) -> Outcome | None:
    """Ask a person as often as a retry that the person wants fails."""
    permitted, failure, retries = case.permitted, case.failure, 0
    call = permitted.call
    try:
        while True:
            wait_id = f"call-{case.place.activity_id}-{retries}"
            asked = Asked(call, wait_id, failure.error, run.now, failure.unclear)
            decision = await ask_person(run, escalation(run.state, asked, case.settings))
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
            permitted = replace(permitted, verdict=again.permitted.verdict)
            retries += 1
            attempt = await execute_once(run, permitted, Place(f"{case.place.activity_id}.r{retries}", case.place.key))
            if isinstance(attempt, Outcome):
                return attempt.model_copy(update={"result": None})
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
    attributes.show_dead_letters(run)
    outcome = case.failure.outcome(case.permitted.call)
    return outcome.with_words(after=f"\n{dead_lettered(letter)}")


_Strategy = Callable[[Run, Case], Awaitable[Outcome | None]]

_STRATEGIES: dict[RecoveryStrategy, _Strategy] = {
    "fallback": first_that_works,
    "cached_result": _cached,
    "llm_recovery": _by_the_model,
    "escalate": _escalated,
    "dead_letter": _dead_letter,
}
"""`retry` is an option of the activity; after it there is nothing more to do."""

_ASKING: frozenset[RecoveryStrategy] = frozenset({"escalate", "dead_letter"})
"""Not for what is only looked up before the first reasoning step: its failure is told, nobody has to act on it."""
