"""A call that was allowed before people held it up: it is judged once more, when the run is not paused any more."""

from temporalio import workflow

from workflows.phases import gate
from workflows.phases.gate import Ruling
from workflows.phases.run import Run


async def resumed(run: Run, ruling: Ruling) -> Ruling:
    """Return the ruling that holds: of a paused run the one once it goes on."""
    return (await confirmed(run, ruling)) or ruling if run.state.paused else ruling


async def confirmed(run: Run, ruling: Ruling) -> Ruling | None:
    """Return the ruling that holds once the run is not paused; None when it is ended before."""
    await workflow.wait_condition(lambda: not run.state.paused or run.is_interrupted())
    return await gate.confirm(run, ruling)
