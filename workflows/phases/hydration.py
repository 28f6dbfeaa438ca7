"""Hydrate: what the task refers to is looked up before the first reasoning step, through the gate like any call."""

import asyncio

from temporalio import workflow

from orga.workflows.decisions import hydration
from orga.workflows.decisions.dispatch import with_under_way
from orga.workflows.decisions.hydration import references_in
from orga.workflows.decisions.limits import tool_calls_left
from orga.workflows.decisions.outcomes import refused
from orga.workflows.phases import gate
from orga.workflows.phases.act import execute_call
from orga.workflows.phases.attempt import outcome_of
from orga.workflows.phases.control.pace import checkpoint, enter, phase_span, wait_if_paused
from orga.workflows.phases.control.run import Interrupted, settle
from orga.workflows.phases.run import Run
from orga.workflows.types.hydration import PreHydration
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.recovery import Outcome


async def hydrate(run: Run) -> None:
    """Look up, once in a run, what its task refers to; a task that refers to nothing leaves no trace in the history."""
    if run.state.hydrated or run.is_interrupted():
        return
    config = run.config.pre_hydration or PreHydration()
    references = references_in(run.state.input.task, config) if config.enabled else ()
    looked_up = hydration.lookups(references, config, run.setup.tools, tool_calls_left(run.state))
    calls = tuple(lookup.call for lookup in looked_up if lookup.call is not None)
    outcomes: tuple[Outcome, ...] = ()
    if calls:
        enter(run, "hydrating")
        with phase_span("hydrate", 0):
            outcomes = await _outcomes(run, calls, config.timeout_s)
        run.change(hydration.with_calls, outcomes)
    late = "the run was ended before" if run.is_interrupted() else f"not there within {config.timeout_s:g} s"
    by_id = {outcome.call.call_id: outcome for outcome in outcomes}
    run.change(hydration.with_hydration, hydration.found(looked_up, by_id, late), config.max_context_tokens)
    await wait_if_paused(run)


async def _outcomes(run: Run, calls: tuple[ToolCall, ...], timeout_s: float) -> tuple[Outcome, ...]:
    """Return an outcome for each call that was judged; none when the run is ended before."""
    places = tuple(f"0.{index}" for index in range(len(calls)))
    try:
        results = await gate.judge_calls(run, calls, places, "hydration")
        await checkpoint(run)
    except Interrupted:
        return ()
    permitted = {index: result.permitted for index, result in enumerate(results) if result.permitted is not None}
    run.change(with_under_way, [allowed.call for allowed in permitted.values()])
    tasks = {i: asyncio.create_task(execute_call(run, allowed, places[i])) for i, allowed in permitted.items()}
    await _settled(run, list(tasks.values()), timeout_s)
    return tuple(
        outcome_of(tasks[index], permitted[index]) if index in tasks else refused(result.call, result.verdict)
        for index, result in enumerate(results)
    )


async def _settled(run: Run, tasks: list[asyncio.Task[Outcome]], timeout_s: float) -> None:
    """Wait for all of them, for the deadline, or for the end of the run; what is in by then is kept."""
    if not tasks:
        return
    deadline = run.beside(run.event(workflow.sleep(timeout_s, summary="pre-hydration")))
    await settle(tasks, lambda: deadline.done() or run.is_interrupted())
    deadline.cancel()
