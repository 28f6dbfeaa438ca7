"""The workers that poll a task queue, as the server remembers them, and the event loops of this machine's workers."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import Client
from temporalio.service import RPCError

from orga.activities.adapters.shared_files import acquire_lock, is_locked
from orga.client.errors import ServerUnavailable
from orga.client.server.home import UnreadableTable, prepare_home, read_table, server_home, write_table
from orga.client.server.server_errors import is_unsupported
from orga.workflows.types.workplace import Workplace

NO_CONFIG = "-"
"""Replaces the digest of a worker without `orga.toml`."""
CONFIG_CHARS = 8
POLICY_CHARS = 6

RECENT = timedelta(seconds=60)
"""The longest time of a long poll. The server has seen each live worker within this time."""


async def describe_queue(
    client: Client, task_queue: str, kind: "TaskQueueType.ValueType" = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
) -> DescribeTaskQueueResponse | None:
    """Return the server's description of a queue, for workflow tasks or for activity tasks.

    None if the server does not support that. Temporal's test server does not.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=kind,
    )
    try:
        return await client.workflow_service.describe_task_queue(request, retry=True)
    except RPCError as error:
        if is_unsupported(error):
            return None
        raise


def live_pollers(answer: DescribeTaskQueueResponse) -> list[PollerInfo]:
    """Return the workers that poll. The server lists a worker for a minute after its last poll.

    Workers of this machine that are dead or end are left out.
    """
    oldest = datetime.now(UTC) - RECENT
    return [
        poller
        for poller in answer.pollers
        if poller.last_access_time.ToDatetime(tzinfo=UTC) >= oldest and _may_poll(poller.identity)
    ]


def _may_poll(identity: str) -> bool:
    return may_live(identity) and not _is_ending(identity)


async def poller_identities(client: Client, task_queue: str) -> list[str] | None:
    """Return the identities of the workers that poll for workflow tasks. None if the server does not report them."""
    answer = await describe_queue(client, task_queue)
    return None if answer is None else [poller.identity for poller in live_pollers(answer)]


async def may_be_polled(client: Client, task_queue: str) -> bool:
    """Return whether a worker may be running. False only if the server reports that none polls."""
    return await poller_identities(client, task_queue) != []


class WorkerIdentity(NamedTuple):
    """The identity of a worker. Its text is `PID@HOST#CONFIG`, or `PID@HOST#CONFIG.POLICY` on a shared server.

    The text is part of most events of a history, so the digests in it are short.
    """

    process: str
    """`PID@HOST`, which is the SDK's default for the whole identity."""
    config: str | None = None
    """The digest of the configuration that the worker started with, or `NO_CONFIG`. None if the text has none."""
    policy: str = ""
    """The policy in the form of `short_policy`, or "" if the text has none."""

    @classmethod
    def parse(cls, text: str) -> Self:
        process, _, digests = text.partition("#")
        config, _, policy = digests.partition(".")
        return cls(process, config or None, policy)

    def __str__(self) -> str:
        config = f"#{self.config}" if self.config else ""
        return f"{self.process}{config}.{self.policy}" if self.policy else f"{self.process}{config}"


def local_process(pid: int) -> str:
    """Return the `process` of the identity of a worker on this machine."""
    return f"{pid}@{socket.gethostname()}"


def short_config(workplace: Workplace) -> str:
    """Return the digest of a workplace's configuration, as identities contain it."""
    return workplace.digest[:CONFIG_CHARS] or NO_CONFIG


def short_policy(policy: str) -> str:
    """Return the text of a policy (from `policy_text`) with shorter digests."""
    engine, *digests = policy.split(":")
    return ":".join([engine, *(digest[:POLICY_CHARS] for digest in digests)])


def may_live(identity: str) -> bool:
    """Return False for a dead process of this machine."""
    pid = _local_pid(identity)
    if pid is None:
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:  # the process lives, and belongs to another user
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _local_pid(identity: str) -> int | None:
    """Return the process number of a worker on this machine, or None."""
    pid, _, host = WorkerIdentity.parse(identity).process.partition("@")
    is_local = pid.isdigit() and host == socket.gethostname()
    return int(pid) if is_local else None


def _is_ending(identity: str) -> bool:
    pid = _local_pid(identity)
    return pid is not None and is_locked(server_home().ending_workers / str(pid))


@contextmanager
def marked_as_ending() -> Generator[None]:
    """Let this user's commands know that this worker polls no more. Without the mark they notice after a minute."""
    mark: int | None = None
    folder = server_home().ending_workers
    with suppress(OSError, ServerUnavailable):
        prepare_home()
        folder.mkdir(mode=0o700, exist_ok=True)
        mark = acquire_lock(folder / str(os.getpid()))
    try:
        yield
    finally:
        if mark is not None:
            (folder / str(os.getpid())).unlink(missing_ok=True)
            os.close(mark)


def remember_blocked_loop(block: object) -> None:
    """Record a `LoopBlock` of this process's event loop. If that fails, the log and the metric still show it."""
    with suppress(OSError, ServerUnavailable, UnreadableTable):
        path = server_home().blocked_loops
        living = {process: text for process, text in read_table(path).items() if may_live(process)}
        text = f"{block}, until {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        write_table(path, living | {local_process(os.getpid()): text})


def longest_block_text(process: str) -> str:
    """Return the longest block of a worker's event loop as a text, or "" if none is recorded.

    Args:
        process: The `process` of the worker's identity.
    """
    try:
        return read_table(server_home().blocked_loops).get(process, "")
    except UnreadableTable:
        return ""
