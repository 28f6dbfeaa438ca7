"""Leases: the embedded server stays up while somebody holds one.

All share one lock. A command that dies, however it dies, has given its lease back; nothing is left to clean up.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager

from orga.client.server.home import Home, prepared_home
from orga.client.server.locks import taken, waited_for


@contextmanager
def lease() -> Generator[None]:
    """Keep the embedded server up. Take it before `ensure_server`.

    While an idle server is being stopped this waits, for a second or two, until it is gone; `ensure_server` then
    starts the next one.
    """
    descriptor = waited_for(prepared_home().leases_lock, shared=True)
    try:
        yield
    finally:
        os.close(descriptor)


def unleased(home: Home) -> int | None:
    """Return a lock that keeps new leases waiting, or None while there are any."""
    return taken(home.leases_lock)
