"""Early events are recognised, and no other event counts as one."""

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob

from orga.client.cli.commands import COMMANDS
from orga.client.workers.core_faults import LAST_STEP_S, SHUTDOWN_GRACE, EarlyEvents
from orga.client.workers.process import STOP_TIMEOUT_S


def test_the_last_step_fits_into_the_shutdown_grace_of_activities() -> None:
    """A stopped worker has time for its last steps before its command kills it."""
    assert SHUTDOWN_GRACE.total_seconds() + LAST_STEP_S < STOP_TIMEOUT_S


def test_the_help_of_the_worker_shows_how_long_running_calls_have() -> None:
    [command] = [command for group in COMMANDS.values() for command in group if command.name == "worker"]
    assert f"Running calls then have {SHUTDOWN_GRACE.total_seconds():g} seconds to end." in command.help


def activation(events: int, size: int, *jobs: str, run_id: str = "run", time: int = 0) -> WorkflowActivation:
    """Return an activation with this many events in its history, and this size at the start of its task."""
    made = WorkflowActivation(run_id=run_id, history_length=events, history_size_bytes=size)
    made.timestamp.FromSeconds(time)
    for job in jobs:
        made.jobs.append(WorkflowActivationJob())
        getattr(made.jobs[-1], job).SetInParent()
    return made


START = activation(3, 500, "initialize_workflow")


def test_events_after_the_last_workflow_task_are_early() -> None:
    early = EarlyEvents()
    assert not early.is_early(START)
    assert early.is_early(activation(8, 500, "resolve_activity"))
    assert early.is_early(activation(9, 500, "signal_workflow")), "the run has processed none of them"
    assert not early.is_early(activation(9, 500, "query_workflow"))


def test_workflow_tasks_and_their_activations_are_not_early() -> None:
    early = EarlyEvents()
    given = [
        START,
        activation(3, 500, "resolve_activity"),  # a local activity, in the same task
        activation(3, 500, "query_workflow"),
        activation(9, 900, "resolve_activity"),
        activation(15, 1_400, "fire_timer"),
        activation(15, 1_400, "query_workflow"),
    ]
    assert not any(map(early.is_early, given))


def test_a_task_for_updates_is_not_early() -> None:
    """The server does not record it. After a refused update, the next one begins at the same event."""
    early = EarlyEvents()
    given = [
        activation(23, 4_800, "signal_workflow"),
        activation(29, 5_600, "do_update"),
        activation(27, 5_600, "query_workflow"),
        activation(29, 5_600, "do_update"),
        activation(27, 5_600, "query_workflow"),
    ]
    assert not any(map(early.is_early, given))
    assert early.is_early(activation(28, 5_600, "resolve_activity"))


def test_a_later_workflow_task_is_not_early_regardless_of_size() -> None:
    early = EarlyEvents()
    assert not early.is_early(START)
    assert not early.is_early(activation(9, 500, "resolve_activity", time=1))


def test_other_runs_and_evicted_runs_are_not_compared() -> None:
    early = EarlyEvents()
    given = [
        START,
        activation(8, 500, "resolve_activity", run_id="another run"),
        activation(3, 500, "remove_from_cache"),
        activation(8, 500, "initialize_workflow"),
    ]
    assert not any(map(early.is_early, given))


def test_without_sizes_from_the_server_nothing_is_early() -> None:
    early = EarlyEvents()
    assert not early.is_early(activation(3, 0, "initialize_workflow"))
    assert not early.is_early(activation(9, 0, "resolve_activity"))
