"""Waiting for a person: as long as it takes, outside the run's clock, and an abort goes through."""

import asyncio

from workflows.decisions import waits
from workflows.phases import attributes
from workflows.phases.interrupt import Interrupted
from workflows.phases.pace import set_phase
from workflows.phases.run import Run
from workflows.types.waits import Resolution, Wait


async def ask_person(run: Run, wait: Wait) -> Resolution:
    """Ask a person and return the decision.

    Raises:
        Interrupted: The run is ended before there is one.
    """
    run.change(waits.opened, wait, run.now)
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
    run.change(waits.closed, wait_id, run.now)
    if then:
        set_phase(run, then)
    attributes.show_waiting(run)


def _resolution(run: Run, wait_id: str) -> Resolution | None:
    wait = waits.wait_named(run.state, wait_id)
    return wait.resolution if wait is not None else None
