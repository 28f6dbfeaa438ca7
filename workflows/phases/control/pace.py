"""Where a run stands, shown in its current details; it stands still between phases while it is paused."""

from typing import Any

from temporalio import workflow

from orga.workflows.phases.control import attributes
from orga.workflows.phases.control.run import ControlledRun, RollOver

AnyRun = ControlledRun[Any]


def show_details(run: AnyRun) -> None:
    """Show where the run stands in the Temporal UI."""
    workflow.set_current_details(run.details())


def enter(run: AnyRun, doing: str) -> None:
    """Begin with a phase."""
    run.state = run.state.with_control(doing=doing)
    show_details(run)


async def wait_if_paused(run: AnyRun, *, may_roll_over: bool = False) -> None:
    """Stand still while paused; an abort goes through, and one that is in doubt is waited for."""
    if run.doubts:
        await workflow.wait_condition(lambda: not run.doubts)
    if not run.state.paused:
        return
    _stand(run, True)
    try:
        await run.wait_until(lambda: not run.state.paused or run.is_interrupted(), may_roll_over=may_roll_over)
    except RollOver:
        run.state = run.state.with_control(is_standing=False)
        raise
    _stand(run, False)


def _stand(run: AnyRun, is_standing: bool) -> None:
    run.state = run.state.with_control(is_standing=is_standing)
    show_details(run)
    attributes.show_phase(run)


async def checkpoint(run: AnyRun, *, may_roll_over: bool = False) -> None:
    """Stand still while paused.

    Raises:
        Interrupted: The run is to end.
    """
    await wait_if_paused(run, may_roll_over=may_roll_over)
    run.raise_if_interrupted()
