"""A call that was allowed before the run was paused: it stands still, and is judged once more when the run goes on."""

from temporalio import workflow

from workflows.phases import gate
from workflows.phases.gate import GateResult
from workflows.phases.run import Run


async def confirm_when_resumed(run: Run, result: GateResult) -> GateResult:
    """Return the result that holds once the run is paused no more.

    Raises:
        Interrupted: The run is ended before.
    """
    if not run.state.paused:
        return result
    await workflow.wait_condition(lambda: not run.state.paused or run.is_interrupted())
    return await gate.confirm(run, result)
