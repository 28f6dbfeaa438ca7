"""A port for a server that gets its port as an argument, and that may restart on the same port."""

import random
import socket
from contextlib import suppress
from pathlib import Path

_GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_REGISTERED = range(20_000, 65_536)
_DYNAMIC = (49_152, 65_535)
"""The IANA's range, used if the system does not report its own."""


def free_port() -> int:
    """Return a port that is free now, and that the kernel does not assign by itself.

    An ephemeral port could be assigned to a connection of another process after the server has stopped.

    Raises:
        RuntimeError: All ports are in use or ephemeral.
    """
    first, last = _given_out()
    apart = [port for port in _REGISTERED if not first <= port <= last]
    for port in random.sample(apart, min(len(apart), 100)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError(f"no port from {_REGISTERED.start} on is free beside {first} to {last}: narrow {_GIVEN_OUT}")


def _given_out() -> tuple[int, int]:
    """Return the first and the last ephemeral port."""
    if not _GIVEN_OUT.exists():
        return _DYNAMIC
    first, last = map(int, _GIVEN_OUT.read_text().split())
    return first, last
