"""Alternatives: tools that are called in place of one whose attempts are used up. They are calls like any."""

from dataclasses import dataclass, field

from workflows.decisions.dispatch import has_room, over_budget, with_one_more
from workflows.decisions.idempotency import idempotency_key
from workflows.decisions.outcomes import failed, not_run, refused, with_change
from workflows.decisions.recovery import Alternative, with_alternative
from workflows.decisions.recovery_texts import from_fallback
from workflows.phases import critique, gate
from workflows.phases.attempt import Failed, Place
from workflows.phases.gate import AllowedCall
from workflows.phases.interrupt import CutShort, Interrupted
from workflows.phases.run import Run
from workflows.phases.tried import execute_once
from workflows.types.messages import ToolCall
from workflows.types.outcome import Outcome
from workflows.types.recovery import Recovery


@dataclass(frozen=True)
class Case:
    """A call whose attempts are used up, and what is to be done about it."""

    permitted: AllowedCall
    place: Place
    failure: Failed
    settings: Recovery
    made: list[Alternative] = field(default_factory=list[Alternative])
    """The calls in place of it that were judged, as they end."""


async def first_that_works(run: Run, case: Case) -> Outcome | None:
    """Call the alternatives in order, each through the gate; never after an effect that may have happened."""
    place, call = case.place, case.permitted.call
    if case.failure.is_unknown:
        return None
    is_cut_short = place.is_cut_short or run.is_interrupted
    for number, name in enumerate(case.settings.alternatives):
        there = Place(f"{place.activity_id}.f{number}", "", is_cut_short)
        begun = await _permitted(run, call.model_copy(update={"name": name}), there, is_cut_short)
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


async def _permitted(run: Run, call: ToolCall, place: Place, is_cut_short: CutShort) -> AllowedCall | Outcome:
    """Return the call as it may be made, or why it is not: gate, critics and `max_tool_calls` count for it, too."""
    if not has_room(run.state):
        return over_budget(run.state, call)
    try:
        (result,) = await gate.judge_calls(run, (call,), (place.activity_id,), "fallback", is_cut_short)
        permitted = result.permitted
        if is_cut_short():
            return not_run(call)
        if permitted is None:
            return refused(call, result.verdict)
        if not await _may_stand_in(run, permitted, place):
            return not_run(call, "a critic turned it down, or it is no lookup")
    except Interrupted:
        return not_run(call)
    return permitted if has_room(run.state) else over_budget(run.state, call)


async def _may_stand_in(run: Run, permitted: AllowedCall, place: Place) -> bool:
    """Return whether critics let it pass; before the first reasoning step nobody could, so that it must only read."""
    if place.is_before_reasoning:
        return permitted.spec.effect == "read_only"
    return await critique.objection(run, permitted, place.activity_id) is None


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
        return failed(call, told, is_unknown=True, took_effect=attempt.took_effect)
    if attempt.status == "ok":
        answer = Outcome(call=call, status="ok", text=f"{error}\n{attempt.text}", by=name)
        return answer.with_words(before=from_fallback(name))
    return attempt.model_copy(update={"call": call}) if attempt.status == "cancelled" else None
