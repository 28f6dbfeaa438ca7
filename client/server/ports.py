"""Ports for a server: the preferred one, or the next that nobody uses.

A port that is free can be taken before the server binds it. Between our own servers a lock on the number settles that;
a server that finds its port taken by another program ends at once and says so in its log.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from orga.client.server.endpoint import ServerUnavailable
from orga.client.server.locks import taken

TRIES = 200


@dataclass(frozen=True)
class Claim:
    """A port number, ours as long as the descriptor stays open."""

    port: int
    descriptor: int


def claimed_port(preferred: int, host: str, locks: Path) -> Claim:
    """Return the first port from `preferred` on that is free on `host` and that no other server of ours claimed."""
    locks.mkdir(parents=True, exist_ok=True)
    for port in range(preferred, min(preferred + TRIES, 65_536)):
        descriptor = taken(locks / f"{port}.lock")
        if descriptor is None:
            continue
        if _is_free(host, port):
            return Claim(port, descriptor)
        os.close(descriptor)
    raise ServerUnavailable(
        f"every port from {preferred} to {preferred + TRIES - 1} on {host} is in use",
        "stop what uses them, or name a running server in TEMPORAL_ADDRESS",
    )


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Go does: a socket in TIME_WAIT is no obstacle
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
