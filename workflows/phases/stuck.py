"""Steps that got nowhere and wait for a person."""

from workflows.decisions import steps
from workflows.phases.pace import enter
from workflows.phases.run import Run
from workflows.phases.waiting import answered


async def resolved(run: Run) -> None:
    """Wait until a person has decided about every step that asks for one."""
    if not run.state.waits:
        return
    phase = run.state.phase
    for wait in [wait for wait in run.state.waits if wait.kind == "escalation"]:
        enter(run, "waiting")
        resolution = await answered(run, wait.wait_id, phase)
        if resolution is not None:
            run.change(steps.with_resolved_step, wait.model_copy(update={"resolution": resolution}))
