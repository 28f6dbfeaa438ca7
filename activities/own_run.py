"""The run that an activity belongs to."""

from temporalio import activity

from orga.activities.ports import RunKey


def own_run() -> RunKey:
    """Return the key of the run of the current activity."""
    info = activity.info()
    return RunKey(info.workflow_id or "", info.workflow_run_id or "")
