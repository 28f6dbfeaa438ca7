"""Is there a worker? Who polls a task queue, as the server remembers it."""

import os
import socket
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

RECENT = timedelta(seconds=60)
"""A long poll lasts as long, so a worker that lives was seen within it."""


async def pollers(client: Client, task_queue: str) -> list[str]:
    """Return the identities of the workers that poll for workflows, those known to be dead left out."""
    answer = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
    )
    oldest = datetime.now(UTC) - RECENT
    return [
        poller.identity
        for poller in answer.pollers
        if poller.last_access_time.ToDatetime(tzinfo=UTC) >= oldest and may_live(poller.identity)
    ]


def own_identity(pid: int) -> str:
    """Return the identity that the SDK gives a worker process of this machine."""
    return f"{pid}@{socket.gethostname()}"


def may_live(identity: str) -> bool:
    """Return False for a process of this machine that is gone: the server lists a killed worker for a minute."""
    pid, at, host = identity.partition("@")
    if not at or not pid.isdigit() or host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
