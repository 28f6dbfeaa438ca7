"""Recovery: what a tool's config says to do once the attempts of a call are used up."""

from collections.abc import Awaitable, Callable

from temporalio import workflow

from workflows.decisions import recovery
from workflows.decisions.idempotency import idempotency_key
from workflows.decisions.outcomes import failed, turned_away, with_change
from workflows.decisions.recovery_texts import (
    Asked,
    asked_again,
    cached,
    dead_lettered,
    escalation,
    from_fallback,
    given_up,
    not_retried,
    person_gave,
)
from workflows.phases import attributes, critique, gate
from workflows.phases.attempt import Failed, Place
from workflows.phases.gate import Permitted, Ruling
from workflows.phases.run import Run
from workflows.phases.tried import tried
from workflows.phases.waiting import decided
from workflows.types.dead_letters import DeadLetter
from workflows.types.outcome import Outcome
from workflows.types.recovery import Recovery, RecoveryStrategy


async def recovered(run: Run, permitted: Permitted, place: Place, failure: Failed) -> Outcome:
    """Return the outcome of a call that failed."""
    settings = recovery.recovery_of(permitted.spec, run.config)
    strategy = _STRATEGIES.get(settings.strategy)
    if place.is_before_reasoning and settings.strategy in _ASKING:
        strategy = None
    outcome = await strategy(run, permitted, place, failure, settings) if strategy else None
    if strategy is not None:
        how = outcome.status if outcome else "failed"
        run.change(recovery.triggered, permitted.call, settings.strategy, failure.error, how)
    return outcome or _plain(permitted, failure)


def _plain(permitted: Permitted, failure: Failed) -> Outcome:
    call, error = permitted.call, failure.error
    outcome = failed(call, error, is_unknown=failure.is_unknown) if failure.was_run else turned_away(call, error)
    return outcome.model_copy(update={"may_have_acted": failure.may_have_acted or failure.is_unknown})


async def _fallback(
    run: Run, permitted: Permitted, place: Place, failure: Failed, settings: Recovery
) -> Outcome | None:
    """Call the alternatives in order, each through the gate; never after an effect that may have happened."""
    if failure.is_unknown:
        return None
    is_cut_short = place.is_cut_short or run.is_interrupted
    for number, name in enumerate(settings.alternatives):
        call = permitted.call.model_copy(update={"name": name})
        rulings = await gate.judge_calls(run, (call,), run.state.iteration, "fallback", is_cut_short)
        allowed = rulings[0].permitted if rulings else None
        if allowed is None or is_cut_short():
            continue
        activity_id = f"{place.activity_id}.f{number}"
        if not place.is_before_reasoning and not await critique.passes(run, allowed, activity_id):
            continue
        key = idempotency_key(run.state.origin, activity_id, allowed.call)
        attempt = await tried(run, allowed, Place(activity_id, key))
        outcome = _by_fallback(permitted, failure, name, attempt)
        if outcome is not None:
            return with_change(outcome, allowed.verdict)
    return None


def _by_fallback(permitted: Permitted, failure: Failed, name: str, attempt: Outcome | Failed) -> Outcome | None:
    """Return what the alternative made of the call; None where the next one may be tried."""
    if isinstance(attempt, Failed):
        told = f"{failure.error}; {name} was called instead: {attempt.error}"
        return failed(permitted.call, told, is_unknown=True) if attempt.is_unknown else None
    if attempt.status == "ok":
        answer = Outcome(call=permitted.call, status="ok", text=f"{failure.error}\n{attempt.text}", by=name)
        return answer.with_words(before=from_fallback(name))
    return attempt.model_copy(update={"call": permitted.call}) if attempt.status == "cancelled" else None


async def _cached(run: Run, permitted: Permitted, place: Place, failure: Failed, settings: Recovery) -> Outcome | None:
    found = recovery.good_result(run.state, permitted.call, settings, workflow.now())
    if found is None or failure.is_unknown:
        return None
    text, age_s = found
    outcome = Outcome(call=permitted.call, status="ok", text=f"{failure.error}\n{text}")
    return outcome.with_words(before=cached(age_s))


async def _by_the_model(
    run: Run, permitted: Permitted, place: Place, failure: Failed, settings: Recovery
) -> Outcome | None:
    if not failure.was_run:
        return None
    run.change(recovery.with_failure, permitted.spec.name)
    left = recovery.tries_left(run.state, permitted.spec) or 0
    outcome = _plain(permitted, failure)
    told = given_up(permitted.spec.name) if left == 0 else asked_again(left)
    return outcome.with_words(after=f"\n{told}")


async def _escalated(
    run: Run, permitted: Permitted, place: Place, failure: Failed, settings: Recovery
) -> Outcome | None:
    """Ask a person as often as a retry that the person wants fails."""
    retries = 0
    while True:
        asked = Asked(permitted.call, f"call-{place.activity_id}-{retries}", failure.error, workflow.now())
        wait = escalation(run.state, asked, settings)
        decision = await decided(run, wait)
        if decision is None or decision.choice == "skip":
            return _plain(permitted, failure)
        if decision.choice == "result":
            return Outcome(call=permitted.call, status="ok", text="").with_words(before=person_gave(decision.result))
        if decision.choice == "abort":
            run.change(recovery.escalated_to_an_end, permitted.call, decision)
            return _plain(permitted, failure)
        again = await gate.confirm(run, Ruling(permitted.call, permitted.verdict, permitted))
        if again is None or again.permitted is None:  # policy has changed while the person decided
            return _not_retried(permitted, failure, again)
        retries += 1
        attempt = await tried(run, permitted, Place(f"{place.activity_id}.r{retries}", place.key))
        if isinstance(attempt, Outcome):
            return attempt.model_copy(update={"result": None})
        failure = attempt.after(failure)


def _not_retried(permitted: Permitted, failure: Failed, ruling: Ruling | None) -> Outcome:
    outcome = _plain(permitted, failure)
    return outcome if ruling is None else outcome.with_words(after=f"\n{not_retried(ruling.verdict.reason)}")


async def _dead_letter(
    run: Run, permitted: Permitted, place: Place, failure: Failed, settings: Recovery
) -> Outcome | None:
    letter = DeadLetter(
        letter_id=place.activity_id,
        call=permitted.call,
        key=place.key,
        error=failure.error[: recovery.MAX_ERROR_CHARS],
        at=workflow.now(),
    )
    run.change(recovery.with_dead_letter, letter)
    if letter not in run.state.dead_letters:
        return None
    attributes.show_dead_letters(run)
    outcome = _plain(permitted, failure)
    return outcome.with_words(after=f"\n{dead_lettered(letter)}")


_Strategy = Callable[[Run, Permitted, Place, Failed, Recovery], Awaitable[Outcome | None]]

_STRATEGIES: dict[RecoveryStrategy, _Strategy] = {
    "fallback": _fallback,
    "cached_result": _cached,
    "llm_recovery": _by_the_model,
    "escalate": _escalated,
    "dead_letter": _dead_letter,
}
"""`retry` is an option of the activity; after it there is nothing more to do."""

_ASKING: frozenset[RecoveryStrategy] = frozenset({"escalate", "dead_letter"})
"""Not for what is only looked up before the first reasoning step: its failure is told, nobody has to act on it."""
