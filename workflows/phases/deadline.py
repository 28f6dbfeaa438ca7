"""Ends that no phase looks out for: a full history, and the deadline, one timer that is started anew when need be."""

from temporalio import workflow

from orga.workflows.decisions.limits import out_of_time, remaining_s
from orga.workflows.decisions.roll_over import with_full_history
from orga.workflows.phases.run import Run


async def watch_clock(run: Run) -> None:
    """End the run whenever its time is up, until the task is cancelled."""
    while True:
        await workflow.wait_condition(lambda: run.state.clock.stopped_at is None and not run.is_interrupted())
        if remaining_s(run.state, run.config, run.now) <= 0:
            run.change(out_of_time)
            continue
        await _until_checked(run, run.config.timeout_s)


async def _until_checked(run: Run, limit_s: float) -> None:
    """Wait until the time is up as it looks now, or something about it changes."""
    left = remaining_s(run.state, run.config, run.now)
    try:
        await workflow.wait_condition(
            lambda: run.state.clock.stopped_at is not None or run.config.timeout_s != limit_s, timeout=left
        )
    except TimeoutError:
        run.tick()


async def watch_length(run: Run) -> None:
    """End the run when its history is full, until the task is cancelled."""
    await workflow.wait_condition(lambda: run.is_full)
    run.change(with_full_history, run.length.events, run.length.size)
