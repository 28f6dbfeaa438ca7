"""At a limit: a person is asked for more budget, where the config says so."""

from collections.abc import Callable

from workflows.decisions import budget, dispatch, waits
from workflows.decisions.interventions import with_abort
from workflows.phases import attributes
from workflows.phases.gate import Gated
from workflows.phases.pace import set_phase
from workflows.phases.run import Run
from workflows.types.result import StopReason


async def ask_for_budget(
    run: Run, stop: tuple[StopReason, str], is_raised: Callable[[], bool], *, may_roll_over: bool
) -> tuple[StopReason, str] | None:
    """Wait until the limit is raised; return the ending when a person declines it."""
    wait = budget.open_question(run.state)
    if wait is None:
        wait = budget.question(run.state, stop, run.now)
        run.change(budget.with_question)
        run.change(waits.opened, wait, run.now)
    phase = run.state.phase
    set_phase(run, "waiting")
    attributes.show_waiting(run)
    await run.stood_by(
        lambda: _is_decided(run, wait.wait_id) or is_raised() or run.is_interrupted(), may_roll_over=may_roll_over
    )
    asked = waits.wait_named(run.state, wait.wait_id)
    declined = asked.resolution if asked else None
    run.change(waits.closed, wait.wait_id, run.now)
    set_phase(run, phase)
    attributes.show_waiting(run)
    if declined is not None:
        return ("aborted", declined.reason or "aborted by the operator") if declined.choice == "abort" else stop
    return None


async def ask_for_calls(run: Run, gated: Gated) -> Gated:
    """Ask for more tool calls where these are more than are left; else the ones beyond it are answered unrun."""
    calls = gated.allowed
    limit: tuple[StopReason, str] = ("max_iterations", f"limit of {run.config.max_tool_calls} tool calls")
    if dispatch.wants_more(run.state, calls) and budget.is_asked_for(run.state, limit):
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
    wait = budget.open_question(run.state)
    if wait is not None:
        run.change(waits.closed, wait.wait_id, run.now)
        attributes.show_waiting(run)


def _is_decided(run: Run, wait_id: str) -> bool:
    wait = waits.wait_named(run.state, wait_id)
    return wait is None or wait.resolution is not None
