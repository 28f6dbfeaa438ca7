"""Steps that got nowhere and wait for a person."""

from contextlib import suppress

from workflows.decisions import steps
from workflows.phases.interrupt import Interrupted
from workflows.phases.pace import set_phase
from workflows.phases.run import Run
from workflows.phases.waiting import wait_for_answer


async def resolve_stuck_steps(run: Run) -> None:
    """Wait until a person has decided about every step that asks for one."""
    if not run.state.waits:
        return
    phase = run.state.phase
    for wait in [wait for wait in run.state.waits if wait.kind == "escalation"]:
        set_phase(run, "waiting")
        with suppress(Interrupted):  # an ended run closes all its questions
            resolution = await wait_for_answer(run, wait.wait_id, phase)
            run.change(steps.with_resolved_step, wait.model_copy(update={"resolution": resolution}))
