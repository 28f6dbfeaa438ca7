"""Which workers may be alive: the server lists a killed one for a minute."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import cast

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.server.pollers import local_process, may_be_polled, may_live, poller_identities


def a_dead_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        pytest.param(f"{os.getpid()}@{socket.gethostname()}", True, id="a process of ours"),
        pytest.param("1@" + socket.gethostname(), True, id="a process of somebody else"),
        pytest.param(f"{a_dead_process()}@{socket.gethostname()}", False, id="a dead process of this machine"),
        pytest.param(f"{10**30}@{socket.gethostname()}", False, id="an impossible process id"),
        pytest.param("999999@another-machine", True, id="another machine cannot be checked"),
        pytest.param("my-worker", True, id="an identity of another SDK user"),
    ],
)
def test_may_live(identity: str, expected: bool) -> None:
    assert may_live(identity) is expected


def test_our_identity_is_the_default_of_the_sdk() -> None:
    assert local_process(7) == f"7@{socket.gethostname()}"


@dataclass
class Server:
    """The part of a client that returns pollers."""

    failure: RPCStatusCode | None = None
    identities: tuple[str, ...] = ()
    namespace: str = "default"

    @property
    def workflow_service(self) -> "Server":
        return self

    async def describe_task_queue(self, request: object, *, retry: bool) -> DescribeTaskQueueResponse:
        if self.failure is not None:
            raise RPCError("Method a.b.WorkflowService/DescribeTaskQueue is unimplemented", self.failure, b"")
        seen = Timestamp()
        seen.GetCurrentTime()
        return DescribeTaskQueueResponse(
            pollers=[PollerInfo(identity=identity, last_access_time=seen) for identity in self.identities]
        )


@pytest.mark.parametrize(
    ("server", "there", "may_be"),
    [
        pytest.param(Server(identities=("a-worker",)), ["a-worker"], True, id="one polls"),
        pytest.param(Server(), [], False, id="none polls"),
        pytest.param(Server(RPCStatusCode.UNIMPLEMENTED), None, True, id="the server does not report pollers"),
    ],
)
async def test_the_pollers_of_a_queue_are_found(server: Server, there: list[str] | None, may_be: bool) -> None:
    client = cast("Client", server)
    assert (await poller_identities(client, "q"), await may_be_polled(client, "q")) == (there, may_be)


async def test_an_unavailable_server_is_an_error() -> None:
    with pytest.raises(RPCError):
        await poller_identities(cast("Client", Server(RPCStatusCode.UNAVAILABLE)), "q")
