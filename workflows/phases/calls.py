"""One allowed call, carried out to its outcome."""

from collections.abc import Awaitable, Callable, Mapping

from workflows.decisions.deciding import due, reminder, with_undecided
from workflows.decisions.idempotency import idempotency_key
from workflows.decisions.observe import with_termination
from workflows.decisions.recovery import with_success
from workflows.phases.attempt import Failed, Place
from workflows.phases.decide import execute_decide
from workflows.phases.gate import AllowedCall
from workflows.phases.interrupt import CutShort
from workflows.phases.recover import recover
from workflows.phases.run import Run
from workflows.phases.saga import execute_saga
from workflows.phases.tried import execute_once
from workflows.types.loop_tools import DECIDE, SAGA, TERMINATE
from workflows.types.outcome import Outcome


async def execute_call(
    run: Run,
    permitted: AllowedCall,
    activity_id: str,
    is_cut_short: CutShort | None = None,
    *,
    key: str | None = None,
) -> Outcome:
    """Return the outcome of the call, whatever happened to it.

    Args:
        run: The run.
        permitted: What the gate allowed.
        activity_id: `<iteration>.<index>`; iteration 0 stands for what comes before the first reasoning step.
        is_cut_short: Whether the call has to end; None is with the run.
        key: Idempotency key, where the call has one already.
    """
    if by_the_loop := _BY_THE_LOOP.get(permitted.call.name):
        return await by_the_loop(run, permitted, activity_id)
    known = key or idempotency_key(run.state.origin, activity_id, permitted.call)
    place = Place(activity_id, known, is_cut_short)
    attempt = await execute_once(run, permitted, place)
    if isinstance(attempt, Failed):
        return await recover(run, permitted, place, attempt)
    if attempt.status == "ok":
        run.change(with_success, permitted.spec, permitted.call, attempt.text, run.now)
    return attempt


async def _end(run: Run, permitted: AllowedCall, _: str) -> Outcome:
    if undecided := due(run.state):
        run.change(with_undecided)
        told = f"[Not ended] {reminder(undecided)}"
        return Outcome(call=permitted.call, status="ok", text="").with_words(before=told)
    arguments = permitted.call.arguments
    run.change(with_termination, str(arguments.get("reason", "")), str(arguments.get("output", "")))
    news = "Guidance from the operator arrived" if run.state.inbox else "The operator has calls sent again"
    text = "[Ended]" if run.state.stop else f"[Not ended] {news}; take it into account."
    return Outcome(call=permitted.call, status="ok", text="").with_words(before=text)


async def _decide(run: Run, permitted: AllowedCall, place: str) -> Outcome:
    return execute_decide(run, permitted, place)


async def _play(run: Run, permitted: AllowedCall, place: str) -> Outcome:
    return await execute_saga(run, permitted, place, execute_call)


_BY_THE_LOOP: Mapping[str, Callable[[Run, AllowedCall, str], Awaitable[Outcome]]] = {
    TERMINATE: _end,
    DECIDE: _decide,
    SAGA: _play,
}
"""How the loop's own tools are carried out, all but `delegate`: that one can fail and be recovered, see `tried`."""
