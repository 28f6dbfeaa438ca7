"""Works around faults of the SDK's core (temporalio 1.35) in its interface to the Python SDK.

Without this module, a worker may never end, and a query may run workflow code on events of a task that has not started.
"""

import asyncio
import logging
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple, Protocol, cast

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import Worker

SHUTDOWN_GRACE = timedelta(seconds=10)
"""Time for running activities to end after the worker is asked to stop. The SDK would cancel them at once."""

LAST_STEP_S = 3.0
"""Seconds for the last step of a shutdown, after all polls and completions. The step usually takes milliseconds.

With `SHUTDOWN_GRACE`, the shutdown takes less time than the command waits for a worker (`STOP_TIMEOUT_S`)."""

_log = logging.getLogger(__name__)


class _Bridge(Protocol):
    def initiate_shutdown(self) -> None: ...

    def finalize_shutdown(self) -> Awaitable[None]: ...

    def poll_workflow_activation(self) -> Awaitable[WorkflowActivation]: ...

    def complete_workflow_activation(self, comp: WorkflowActivationCompletion) -> Awaitable[None]: ...

    def request_workflow_eviction(self, run_id: str) -> None: ...


def work_around_core_faults(worker: Worker) -> Worker:
    """Work around the faults that occur while a worker runs. Return the same worker."""
    bridge = cast("_Bridge", worker._bridge_worker)
    _bound_last_step(bridge, worker.task_queue)
    _withhold_early_events(bridge)
    return worker


def _bound_last_step(bridge: _Bridge, task_queue: str) -> None:
    """Limit the time of a shutdown's last step.

    In that step the SDK's core (sdk-rust issue 1537) may wait forever for an activity that completed while the shutdown
    began, and the Python SDK sets no limit. The step may be given up, because the SDK ignores its errors too.
    """
    finalize = bridge.finalize_shutdown

    async def finalize_in_time() -> None:
        try:
            await asyncio.wait_for(finalize(), LAST_STEP_S)
        except TimeoutError:
            _log.warning("the worker of %r has ended, except for the SDK's own clean-up", task_queue)

    bridge.finalize_shutdown = finalize_in_time


class _HistorySoFar(NamedTuple):
    """The history that workflow code has processed, as the run's last activation describes it."""

    events: int
    size_at_task: int
    """Bytes at the start of the last workflow task. 0 from servers that do not report it."""
    time: int
    """The run's time in nanoseconds. It advances when a workflow task starts and when a local activity ends."""


class EarlyEvents:
    """Recognizes activations with events that no workflow task has started to process yet.

    If no worker has a run in its cache, the server sends a query with the whole history. This history may have events
    after the last workflow task. The SDK's core runs workflow code on them at once, though their task has not started:
    the code sees the time of the last task, and perhaps not all events of the next one. The next task then reports what
    that code did. No replay of the history can repeat it, so the run is stuck when it leaves the worker's cache.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _HistorySoFar] = {}
        """By run id, for the runs in the worker's cache."""

    def is_early(self, activation: WorkflowActivation) -> bool:
        """Return whether the activation has early events, and remember it. Call this for each activation, in order.

        A workflow task that has started reports a new time, and a new size because the history has grown. There are
        two exceptions. A task for updates may report the old size, because the server records its start only if the run
        accepts an update. An activation with only queries does not advance the run.
        """
        if any(job.HasField("remove_from_cache") for job in activation.jobs):
            self._seen.pop(activation.run_id, None)
            return False
        time = activation.timestamp.ToNanoseconds()
        now = _HistorySoFar(activation.history_length, activation.history_size_bytes, time)
        last = self._seen.get(activation.run_id)
        has_only_queries = all(job.HasField("query_workflow") for job in activation.jobs)
        has_updates = any(job.HasField("do_update") for job in activation.jobs)
        if last is not None and not has_only_queries and not has_updates:
            has_known_size = last.size_at_task > 0
            is_same_task = has_known_size and (now.size_at_task, now.time) == (last.size_at_task, last.time)
            if is_same_task and now.events > last.events:
                return True
        self._seen[activation.run_id] = now
        return False


def _withhold_early_events(bridge: _Bridge) -> None:
    """Withhold early events from workflow code, and remove the run from the cache once its queries are answered.

    The queries see the run as it was after its last workflow task. The next task replays the run from the beginning.
    """
    poll, early = bridge.poll_workflow_activation, EarlyEvents()

    async def poll_in_order() -> WorkflowActivation:
        while early.is_early(activation := await poll()):
            bridge.request_workflow_eviction(activation.run_id)  # before the completion, so that no task comes between
            completion = WorkflowActivationCompletion(run_id=activation.run_id)
            completion.successful.SetInParent()
            await bridge.complete_workflow_activation(completion)
        return activation

    bridge.poll_workflow_activation = poll_in_order


@contextmanager
def end_if_not_begun(worker: Worker) -> Generator[None]:
    """Mark a worker as ended if something fails before it starts to run.

    Otherwise `async with Worker(...)` waits for ever and hides the failure, because only a worker that has run reports
    its end. The client also allows no other worker on the task queue until this one is asked to stop.
    """
    try:
        yield
    except BaseException:
        cast("_Bridge", worker._bridge_worker).initiate_shutdown()
        worker._shutdown_complete_event.set()
        raise
