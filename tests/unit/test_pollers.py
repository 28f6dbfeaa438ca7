"""Which workers may live: the server lists a killed one for a minute."""

import os
import socket
import subprocess
import sys

import pytest

from client.pollers import may_live, own_identity


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
        pytest.param(f"{10**30}@{socket.gethostname()}", False, id="a number that no process has"),
        pytest.param("999999@another-machine", True, id="another machine cannot be asked"),
        pytest.param("my-worker", True, id="an identity of another maker"),
    ],
)
def test_may_live(identity: str, expected: bool) -> None:
    assert may_live(identity) is expected


def test_our_identity_is_the_one_that_the_sdk_gives() -> None:
    assert own_identity(7) == f"7@{socket.gethostname()}"
