"""Act: the allowed calls run in parallel, each an activity whose type is the tool's name.

One allowed call, carried out to its outcome.

A `decide` call, carried out by the run itself: rules over typed fields and facts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from temporalio import workflow

from orga.workflows.decisions import decision
from orga.workflows.decisions.calls import idempotency_key
from orga.workflows.decisions.decision import due, reminder, with_undecided
from orga.workflows.decisions.dispatch import turned_down, with_under_way
from orga.workflows.decisions.observe import with_termination
from orga.workflows.decisions.outcomes import not_run, refused, with_change
from orga.workflows.decisions.recovery import with_success
from orga.workflows.phases.attempt import Failed, Place, outcome_of
from orga.workflows.phases.control.run import CutShort, settle
from orga.workflows.phases.gate import AllowedCall, Gated, GateResult
from orga.workflows.phases.recovery import execute_once, recover
from orga.workflows.phases.run import Run
from orga.workflows.phases.saga import execute_saga
from orga.workflows.types.loop_tools import DECIDE, SAGA, TERMINATE, loop_tool
from orga.workflows.types.messages import Reply
from orga.workflows.types.recovery import Outcome


class Acted(NamedTuple):
    """A reply with one outcome for each of its calls, in call order."""

    reply: Reply
    results: tuple[GateResult, ...]
    outcomes: tuple[Outcome, ...]


async def run_tools(run: Run, gated: Gated) -> Acted:
    """Run what the gate allowed, at most `max_concurrent_tools` at a time; answer every call whatever happens."""
    iteration = run.state.iteration
    run.brought = 0
    places = [index for index, result in enumerate(gated.results) if result.permitted is not None]
    down = turned_down(run.state, gated.allowed)
    outcomes = {places[nth]: outcome for nth, outcome in down.items()}
    begun = [call for nth, call in enumerate(gated.allowed) if nth not in down]
    run.change(with_under_way, begun)
    tasks: dict[int, asyncio.Task[Outcome]] = {}
    for index, result in enumerate(gated.results):
        if result.permitted is not None and index not in outcomes:
            tasks[index] = asyncio.create_task(execute_call(run, result.permitted, f"{iteration}.{index}"))
    plans = [task for index, task in tasks.items() if loop_tool(gated.results[index].call.name).is_plan]
    if tasks:
        await settle([task for task in tasks.values() if task not in plans], run.is_interrupted)
    if plans:  # they see an interruption by themselves, and need the time to take back what they did
        await workflow.wait_condition(lambda: all(task.done() for task in plans))
    for index, result in enumerate(gated.results):
        if index in tasks and result.permitted is not None:
            outcomes[index] = with_change(outcome_of(tasks[index], result.permitted), result.verdict)
        elif index not in outcomes:
            outcomes[index] = result.rejected or refused(result.call, result.verdict)
    return Acted(gated.reply, gated.results, tuple(outcomes[index] for index in range(len(gated.results))))


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
"""How the loop's own tools are carried out, all but `delegate`: that one can fail, see `execute_once`."""


def execute_decide(run: Run, permitted: AllowedCall, place: str) -> Outcome:
    """Return the outcome; what decides nothing is told as not run."""
    call = permitted.call
    try:
        name, decided = decision.decision_of(run.state, call)
    except ValueError as error:
        return not_run(call, str(error))
    run.change(decision.with_decision, place, name, decided)
    return Outcome(call=call, status="ok", text="").with_words(before=f"[Decided] {name}: {decision.in_words(decided)}")
