"""The workers that poll a task queue, as the server remembers them, and the event loops of this machine's workers.

A worker's identity is `PID@HOST#CONFIG`, or `PID@HOST#CONFIG.POLICY` on a shared server. The last two are short
digests, because the identity is part of most events of a history.
"""

import os
import socket
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.errors import ServerUnavailable
from orga.client.server.home import UnreadableTable, read_table, server_home, write_table
from orga.client.server.server_errors import is_unsupported
from orga.workflows.types.input import Workplace

MARK = "#"
NO_CONFIG = "-"
"""Replaces the digest of a worker without `orga.toml`."""
DIGEST_CHARS = 8
POLICY_MARK = "."
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
    """Return the workers that poll, without workers that are known to be dead."""
    oldest = datetime.now(UTC) - RECENT
    return [
        poller
        for poller in answer.pollers
        if poller.last_access_time.ToDatetime(tzinfo=UTC) >= oldest and may_live(poller.identity)
    ]


async def poller_identities(client: Client, task_queue: str) -> list[str] | None:
    """Return the identities of the workers that poll for workflow tasks. None if the server does not report them."""
    answer = await describe_queue(client, task_queue)
    return None if answer is None else [poller.identity for poller in live_pollers(answer)]


async def may_be_polled(client: Client, task_queue: str) -> bool:
    """Return whether a worker may be running. False only if the server reports that none polls."""
    return await poller_identities(client, task_queue) != []


def own_identity(pid: int) -> str:
    """Return the first part of the identity of a process on this machine."""
    return f"{pid}@{socket.gethostname()}"


def identity_suffix(workplace: Workplace, policy: str = "") -> str:
    """Return the part of an identity after `PID@HOST`."""
    return f"{MARK}{own_digest(workplace)}" + (f"{POLICY_MARK}{short_policy(policy)}" if policy else "")


def own_digest(workplace: Workplace) -> str:
    """Return the digest of a workplace's configuration, as identities contain it."""
    return workplace.digest[:DIGEST_CHARS] or NO_CONFIG


def config_digest(identity: str) -> str | None:
    """Return the digest of the configuration that a worker started with, or None if its identity has none."""
    digest = identity.rpartition(MARK)[2].partition(POLICY_MARK)[0] if MARK in identity else ""
    return digest or None


def identity_policy(identity: str) -> str:
    """Return a worker's policy in the form of `short_policy`, or "" if its identity has none."""
    return identity.rpartition(MARK)[2].partition(POLICY_MARK)[2] if MARK in identity else ""


def short_policy(policy: str) -> str:
    """Return the text of a policy (from `policy_text`) with shorter digests."""
    engine, *digests = policy.split(":")
    return ":".join([engine, *(digest[:POLICY_CHARS] for digest in digests)])


def is_of_process(identity: str, pid: int) -> bool:
    return identity.partition(MARK)[0] == own_identity(pid)


def may_live(identity: str) -> bool:
    """Return False for a dead process of this machine. The server still lists a killed worker for a minute."""
    pid, at, host = identity.partition(MARK)[0].partition("@")
    if not at or not pid.isdigit() or host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # the process lives, and belongs to another user
    return True


def remember_blocked_loop(block: object) -> None:
    """Record the block of this process's event loop. If that fails, the log and the metric still show it."""
    with suppress(OSError, ServerUnavailable, UnreadableTable):
        path = server_home().blocked_loops
        living = {identity: text for identity, text in read_table(path).items() if may_live(identity)}
        text = f"{block}, until {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        write_table(path, living | {own_identity(os.getpid()): text})


def longest_block_text(identity: str) -> str:
    """Return the longest block of a worker's event loop as a text, or "" if none is recorded."""
    try:
        return read_table(server_home().blocked_loops).get(identity.partition(MARK)[0], "")
    except UnreadableTable:
        return ""
