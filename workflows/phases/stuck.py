"""Steps that got nowhere and wait for a person."""

from contextlib import suppress

from workflows.decisions import steps
from workflows.phases.interrupt import Interrupted
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
        with suppress(Interrupted):  # an ended run closes all its questions
            resolution = await answered(run, wait.wait_id, phase)
            run.change(steps.with_resolved_step, wait.model_copy(update={"resolution": resolution}))
