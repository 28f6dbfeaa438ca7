"""Ports for a server: the preferred one, or the next that is free.

A free port can be taken before the server binds it. Between our own servers, a lock on the number prevents that. A
server whose port was taken by another program ends at once and logs the reason.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from orga.activities.adapters.shared_files import try_lock
from orga.client.errors import ServerUnavailable

HOST = "127.0.0.1"
"""The address that embedded servers listen on. Only this machine reaches them."""

MAX_TRIES = 200


@dataclass(frozen=True)
class Claim:
    """A claimed port number. The claim lasts while this process or a child of it has the lock's descriptor open."""

    port: int
    descriptor: int


def number_lock(port: int, locks: Path) -> int | None:
    """Return the descriptor of the lock on a number, or None if another server of ours has claimed it.

    Another program may still use that port.
    """
    locks.mkdir(parents=True, exist_ok=True)
    return try_lock(locks / f"{port}.lock")


def claimed_port(preferred: int, locks: Path, *, lock: int | None = None) -> Claim:
    """Return the first port from `preferred` on that is free and not claimed by another server of ours.

    Args:
        preferred: The first port to try.
        locks: The folder of the locks on numbers.
        lock: A lock on `preferred` that this process already has.
    """
    for port in range(preferred, min(preferred + MAX_TRIES, 65_536)):
        is_locked_already = lock is not None and port == preferred
        descriptor = lock if is_locked_already else number_lock(port, locks)
        if descriptor is None:
            continue
        if _is_free(port):
            return Claim(port, descriptor)
        os.close(descriptor)
    raise ServerUnavailable(
        f"every port from {preferred} to {preferred + MAX_TRIES - 1} on {HOST} is in use",
        "stop what uses them, or name a running server in TEMPORAL_ADDRESS",
    )


def free_port() -> int:
    """Return a port that is free now, for a server that starts at once."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Go does: a socket in TIME_WAIT is no obstacle
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
