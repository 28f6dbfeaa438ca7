"""Waiting for a person, as long as it takes, outside the run's clock: questions, budgets, steps that got nowhere."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from orga.workflows.decisions import dispatch, limits, questions, steps
from orga.workflows.decisions.interventions import with_abort
from orga.workflows.phases import attributes
from orga.workflows.phases.gate import Gated
from orga.workflows.phases.interrupt import Interrupted
from orga.workflows.phases.pace import set_phase
from orga.workflows.phases.run import Run
from orga.workflows.types.questions import Resolution, Wait
from orga.workflows.types.result import StopReason


async def ask_person(run: Run, wait: Wait) -> Resolution:
    """Ask a person and return the decision.

    Raises:
        Interrupted: The run is ended before there is one.
    """
    run.change(questions.opened, wait, run.now)
    return await wait_for_answer(run, wait.wait_id)


async def wait_for_answer(run: Run, wait_id: str, then: str = "") -> Resolution:
    """Wait for the decision on a question that is open, and close it.

    Args:
        run: The run.
        wait_id: The question.
        then: The phase of the run afterwards; set where nothing else is under way, so that it may continue as new.

    Raises:
        Interrupted: The run is ended before there is one.
    """
    attributes.show_waiting(run)
    try:
        await run.stood_by(
            lambda: _resolution(run, wait_id) is not None or run.is_interrupted(), may_roll_over=bool(then)
        )
    except asyncio.CancelledError:  # the call that waits was given up; an open question would hold the clock
        _close(run, wait_id, then)
        raise
    resolution = _resolution(run, wait_id)
    _close(run, wait_id, then)
    if resolution is None:
        raise Interrupted
    return resolution


def _close(run: Run, wait_id: str, then: str) -> None:
    run.change(questions.closed, wait_id, run.now)
    if then:
        set_phase(run, then)
    attributes.show_waiting(run)


def _resolution(run: Run, wait_id: str) -> Resolution | None:
    wait = questions.wait_named(run.state, wait_id)
    return wait.resolution if wait is not None else None


async def ask_for_budget(
    run: Run, stop: tuple[StopReason, str], is_raised: Callable[[], bool], *, may_roll_over: bool
) -> tuple[StopReason, str] | None:
    """Wait until the limit is raised; return the ending when a person declines it."""
    wait = limits.open_question(run.state)
    if wait is None:
        wait = limits.question(run.state, stop, run.now)
        run.change(limits.with_question)
        run.change(questions.opened, wait, run.now)
    phase = run.state.phase
    set_phase(run, "waiting")
    attributes.show_waiting(run)
    await run.stood_by(
        lambda: _is_decided(run, wait.wait_id) or is_raised() or run.is_interrupted(), may_roll_over=may_roll_over
    )
    asked = questions.wait_named(run.state, wait.wait_id)
    declined = asked.resolution if asked else None
    run.change(questions.closed, wait.wait_id, run.now)
    set_phase(run, phase)
    attributes.show_waiting(run)
    if declined is not None:
        return ("aborted", declined.reason or "aborted by the operator") if declined.choice == "abort" else stop
    return None


async def ask_for_calls(run: Run, gated: Gated) -> Gated:
    """Ask for more tool calls where these are more than are left; else the ones beyond it are answered unrun."""
    calls = gated.allowed
    limit: tuple[StopReason, str] = ("max_iterations", f"limit of {run.config.max_tool_calls} tool calls")
    if dispatch.wants_more(run.state, calls) and limits.is_asked_for(run.state, limit):
        declined = await ask_for_budget(
            run, limit, lambda: not dispatch.wants_more(run.state, calls), may_roll_over=not gated.is_answered
        )
        if declined is not None and declined[0] == "aborted":
            run.change(with_abort, declined[1])
    withdraw(run)
    run.change(dispatch.with_over_budget, dispatch.wants_more(run.state, calls))
    return gated


def withdraw(run: Run) -> None:
    """Close what the run before this one had asked where it is not asked on: left open, it would hold the clock."""
    wait = limits.open_question(run.state)
    if wait is not None:
        run.change(questions.closed, wait.wait_id, run.now)
        attributes.show_waiting(run)


def _is_decided(run: Run, wait_id: str) -> bool:
    wait = questions.wait_named(run.state, wait_id)
    return wait is None or wait.resolution is not None


async def resolve_stuck_steps(run: Run) -> None:
    """Wait until a person has decided about every step that asks for one."""
    if not run.state.waits:
        return
    phase = run.state.phase
    for wait in [wait for wait in run.state.waits if wait.kind == "escalation"]:
        set_phase(run, "waiting")
        with suppress(Interrupted):  # an ended run closes all its questions
            resolution = await wait_for_answer(run, wait.wait_id, phase)
            run.change(steps.with_resolved_step, wait.with_resolution(resolution))
