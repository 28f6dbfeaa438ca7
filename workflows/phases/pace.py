"""Where a run stands, shown in its current details; it stands still between phases while it is paused."""

from temporalio import workflow

from orga.workflows.decisions.summaries import details
from orga.workflows.phases import attributes
from orga.workflows.phases.run import Run


def set_phase(run: Run, phase: str) -> None:
    """Go into a phase."""
    run.state = run.state.with_control(phase=phase)
    workflow.set_current_details(details(run.state))


async def wait_if_paused(run: Run, *, may_roll_over: bool = False) -> None:
    """Stand still while paused; an abort goes through, and one that is in doubt is waited for."""
    if run.doubts:
        await workflow.wait_condition(lambda: not run.doubts)
    if not run.state.paused:
        return
    phase = run.state.phase
    set_phase(run, "paused")
    attributes.show_phase(run)
    await run.stood_by(lambda: not run.state.paused or run.is_interrupted(), may_roll_over=may_roll_over)
    set_phase(run, phase)
    attributes.show_phase(run)


async def checkpoint(run: Run, *, may_roll_over: bool = False) -> None:
    """Stand still while paused.

    Raises:
        Interrupted: The run is to end.
    """
    await wait_if_paused(run, may_roll_over=may_roll_over)
    run.go_on()
