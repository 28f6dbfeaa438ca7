"""A delegated run tells its parent when a person holds it up, and when it goes on."""

from temporalio import workflow
from temporalio.exceptions import FailureError

from workflows.decisions.holding import is_held, told_parent
from workflows.phases.run import Run

SIGNAL = "delegate_held"


async def report_held(run: Run) -> None:
    """Tell the parent of each change, until the task is cancelled; a run without a parent tells nobody."""
    info = workflow.info()
    if info.parent is None:
        return
    parent = workflow.get_external_workflow_handle(info.parent.workflow_id)
    while True:
        await workflow.wait_condition(lambda: is_held(run.state) != run.state.told_held)
        run.change(told_parent, is_held(run.state))
        try:
            await parent.signal(SIGNAL, args=[info.workflow_id, run.state.told_held])
        except FailureError:  # the parent has ended
            return
