"""A call that was allowed before the run was paused: it stands still, and is judged once more when the run goes on."""

from temporalio import workflow

from workflows.phases import gate
from workflows.phases.gate import Ruling
from workflows.phases.run import Run


async def resumed(run: Run, ruling: Ruling) -> Ruling:
    """Return the ruling that holds once the run is paused no more.

    Raises:
        Interrupted: The run is ended before.
    """
    if not run.state.paused:
        return ruling
    await workflow.wait_condition(lambda: not run.state.paused or run.is_interrupted())
    return await gate.confirm(run, ruling)
