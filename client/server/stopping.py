"""Stopping the server process, whether its supervisor still lives or not."""

import os
import signal
import time
from contextlib import suppress

from orga.client.server.endpoint import ServerUnavailable
from orga.client.server.home import Home
from orga.client.server.locks import is_held
from orga.client.server.record import ServerRecord, read_record

TERMINATE_TIMEOUT_S = 10.0


def stop_server(home: Home) -> ServerRecord | None:
    """Stop the server that runs, or that a killed supervisor left, and clean up its record; return that.

    The held lock proves that the recorded process is the server and not another one under its old number.
    A removed record tells a supervisor that the end of the server is wanted.
    """
    record: ServerRecord | None = None
    deadline = time.monotonic() + TERMINATE_TIMEOUT_S
    while is_held(home.server_lock):
        if found := read_record(home.record):
            record = found
            home.record.unlink(missing_ok=True)
            deadline = time.monotonic() + TERMINATE_TIMEOUT_S
            _send(record.pid, signal.SIGTERM)
        elif time.monotonic() > deadline:
            _send(_known(record, home).pid, signal.SIGKILL)
        time.sleep(0.05)
    record = record or read_record(home.record)
    home.record.unlink(missing_ok=True)
    return record


def _known(record: ServerRecord | None, home: Home) -> ServerRecord:
    if record is None:
        raise ServerUnavailable(
            f"a Temporal server runs, but {home.record} does not say which",
            f"end the process that holds {home.server_lock}",
        )
    return record


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
