"""The work before the first iteration: a fork takes over its past, and a worker resolves the setup.

Then the task's references are looked up by calls, which pass the gate like any others.
"""

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy

from orga.workflows.decisions import hydration
from orga.workflows.decisions.begin import size_problem
from orga.workflows.decisions.fork import with_past
from orga.workflows.decisions.hydration import find_references
from orga.workflows.decisions.limits import tool_calls_left
from orga.workflows.decisions.tool_calls.decision import fact_problems
from orga.workflows.decisions.tool_calls.dispatch import with_begun_calls
from orga.workflows.phases import gate
from orga.workflows.phases.act import execute_call
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.attempt import task_outcome
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.control.visibility import enter_phase, pause_checkpoint, phase_span, wait_if_paused
from orga.workflows.phases.review_stages import confirm_results_if_paused
from orga.workflows.types.input import PreHydration
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.names import READ_PAST
from orga.workflows.types.past import AnyForkInput
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.tool_calls.recovery import Outcome
from orga.workflows.types.workplace import policy_in_memo, workplace_in_memo

PAST_ATTEMPT_S = 120.0
"""Seconds to read a past. The activity folds a history of any length."""

HEARTBEAT_TIMEOUT_S = 10.0


async def adopt_past(run: Run) -> None:
    """Take over the past of another run, if this run is a fork.

    InvalidInput, or ActivityError of that type, means that the past does not exist or is invalid. Other errors mean
    that no worker could read it in time.
    """
    fork_input = run.state.fork
    if fork_input is None:
        return
    within_s = run.state.input.config.timeout_s
    past = await run.wait_for_activity(_read_past(fork_input, within_s))
    run.raise_if_interrupted()
    try:
        run.change_state(with_past, type(run.state).model_validate(past))
    except (ValidationError, InvalidInput, OverflowError) as error:
        raise InvalidInput(f"fork: {error}") from None


async def _read_past(fork_input: AnyForkInput, within_s: float) -> Any:
    return await workflow.execute_activity(
        READ_PAST,
        fork_input,
        start_to_close_timeout=timedelta(seconds=PAST_ATTEMPT_S),
        schedule_to_close_timeout=timedelta(seconds=within_s),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"iteration {fork_input.fork.iteration} of {fork_input.fork.workflow_id}",
    )


ATTEMPT_S = 10.0
"""Seconds for `prepare`, which only reads configuration. They are as long as the heartbeat time-out of a model call, so
a dead worker is noticed as soon."""


async def prepare_setup(run: Run) -> Setup:
    """Return the setup.

    InvalidInput, or ActivityError of that type, means that the input names something unknown, lacks a fact that a
    decision needs, or is too large for a run. Other errors mean that no worker answered in time.
    """
    run.raise_if_interrupted()
    setup = await run.wait_for_activity(_prepare(run))
    run.raise_if_interrupted()
    missing_facts = "; ".join(fact_problems(setup.decisions, run.state.input))
    if problem := missing_facts or size_problem(run.state, setup):
        raise InvalidInput(problem)
    return setup


async def _prepare(run: Run) -> Setup:
    run_input, lineage = run.state.input, run.state.input.lineage
    optional: dict[str, Any] = {
        "output_schema": run_input.output_schema,
        "ceiling": lineage.ceiling if lineage.chain else None,
        "depth": lineage.depth or None,
        "workplace": workplace_in_memo(workflow.memo_value),
        "policy": policy_in_memo(workflow.memo_value) or None,
        "pipeline": run.pipeline_name or None,
    }
    request = PrepareRequest(
        agent=run_input.agent,
        model=run_input.model,
        instructions=run_input.instructions,
        tools=run_input.tools,
        config=run_input.config.model_dump(mode="json", exclude_unset=True),
        **{name: value for name, value in optional.items() if value is not None},
    )
    return await workflow.execute_activity(
        "prepare",
        request,
        result_type=Setup,
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        schedule_to_close_timeout=timedelta(seconds=run_input.config.timeout_s),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"agent {run_input.agent}",
    )


async def hydrate(run: Run) -> None:
    """Look up the task's references, once in a run or a turn."""
    if run.state.hydrated or run.is_interrupted():
        return
    config = run.config.pre_hydration or PreHydration()
    references = find_references(run.state.input.task, config) if config.enabled else ()
    lookups = hydration.lookups(references, config, run.setup.tools, tool_calls_left(run.state))
    calls = tuple(lookup.call for lookup in lookups if lookup.call is not None)
    outcomes: tuple[Outcome, ...] = ()
    if calls:
        enter_phase(run, "hydrating")
        with phase_span("hydrate", 0):
            outcomes = await _execute_lookups(run, calls, config.timeout_s)
        run.change_state(hydration.with_lookup_calls, outcomes)
    why_missing = "the run was ended before" if run.is_interrupted() else f"not there within {config.timeout_s:g} s"
    by_id = {outcome.call.call_id: outcome for outcome in outcomes}
    resolved = hydration.resolved_references(lookups, by_id, why_missing)
    run.change_state(hydration.with_hydration, resolved, config.max_context_tokens)
    await wait_if_paused(run)


async def _execute_lookups(run: Run, calls: tuple[ToolCall, ...], timeout_s: float) -> tuple[Outcome, ...]:
    """Return an outcome for each call that was judged. Empty if the run ends first."""
    places = tuple(f"{run.lookup_id_prefix}.{index}" for index in range(len(calls)))
    paused_before_s = run.paused_seconds()
    try:
        results = await gate.judge_calls(run, calls, places, "hydration")
        await pause_checkpoint(run)
        results = await confirm_results_if_paused(run, results, paused_before_s)
    except Interrupted:
        return ()
    permitted = gate.permitted_calls(results)
    run.change_state(with_begun_calls, [allowed.call for allowed in permitted.values()])
    tasks = {i: asyncio.create_task(execute_call(run, allowed, places[i])) for i, allowed in permitted.items()}
    await _settle_lookups(run, list(tasks.values()), timeout_s)
    return tuple(
        task_outcome(tasks[index], permitted[index]) if index in tasks else result.refusal
        for index, result in enumerate(results)
    )


async def _settle_lookups(run: Run, tasks: list[asyncio.Task[Outcome]], timeout_s: float) -> None:
    """Wait for all lookups, for the deadline, or for the end of the run. Lookups that have ended keep their results."""
    if not tasks:
        return
    deadline = run.start_timer(timeout_s, "pre-hydration")
    await run.settle_tasks(tasks, lambda: deadline.done() or run.is_interrupted())
    deadline.cancel()
