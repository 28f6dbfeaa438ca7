"""What the agent's loop asks people itself: for more budget at a limit, and what to do about calls that get nowhere."""

from collections.abc import Callable
from contextlib import suppress

from orga.workflows.decisions import dispatch, limits, steps
from orga.workflows.decisions.control.interventions import with_abort
from orga.workflows.phases.control.interrupt import Interrupted
from orga.workflows.phases.control.questions import ask, withdraw
from orga.workflows.phases.gate import Gated
from orga.workflows.phases.run import Run
from orga.workflows.types.control import Stop


async def ask_for_budget(run: Run, stop: Stop, is_raised: Callable[[], bool], *, may_roll_over: bool) -> Stop | None:
    """Wait until the limit is raised; return the ending when a person declines it."""
    question = limits.question(run.state, stop, run.now)
    run.change(limits.with_budget_asked, question)
    with suppress(Interrupted):  # the loop sees by itself that the run is to end
        asked = await ask(run, question, is_moot=is_raised, may_roll_over=may_roll_over)
        declined = asked.resolution
        if declined is not None:
            return ("aborted", declined.reason or "aborted by the operator") if declined.choice == "abort" else stop
    return None


async def ask_for_calls(run: Run, gated: Gated) -> Gated:
    """Ask for more tool calls where these are more than are left; else the ones beyond it are answered unrun."""
    calls = gated.allowed
    limit: Stop = ("max_iterations", f"limit of {run.config.max_tool_calls} tool calls")
    if dispatch.wants_more(run.state, calls) and limits.is_asked_for(run.state, limit):
        declined = await ask_for_budget(
            run, limit, lambda: not dispatch.wants_more(run.state, calls), may_roll_over=not gated.is_answered
        )
        if declined is not None and declined[0] == "aborted":
            run.change(with_abort, declined[1])
    withdraw(run, "budget")
    run.change(dispatch.with_over_budget, dispatch.wants_more(run.state, calls))
    return gated


async def resolve_stuck_steps(run: Run) -> None:
    """Wait until a person has decided about every step that asks for one; an ended run closes all its questions."""
    for question in [each for each in run.state.questions if each.kind == "escalation"]:
        with suppress(Interrupted):
            asked = await ask(run, question, may_roll_over=True)
            run.change(steps.with_resolved_step, asked)
