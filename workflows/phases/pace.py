"""Where a run stands, shown in its current details; it stands still between phases while it is paused."""

from temporalio import workflow

from workflows.decisions.summaries import details
from workflows.phases import attributes
from workflows.phases.run import Run


def enter(run: Run, phase: str) -> None:
    """Go into a phase."""
    run.state = run.state.model_copy(update={"phase": phase})
    workflow.set_current_details(details(run.state))


async def unpaused(run: Run) -> None:
    """Stand still while paused; an abort goes through."""
    if not run.state.paused:
        return
    phase = run.state.phase
    enter(run, "paused")
    attributes.show_phase(run)
    await workflow.wait_condition(lambda: not run.state.paused or run.is_interrupted())
    enter(run, phase)
    attributes.show_phase(run)
