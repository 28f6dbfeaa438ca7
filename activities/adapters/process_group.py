"""Signals and ends process groups as a whole."""

import asyncio
import os
import signal
from contextlib import suppress

from orga.activities.adapters.process_streams import ProcessStreams


async def end_group(group: asyncio.SubprocessTransport, streams: ProcessStreams, grace_s: float) -> None:
    """Ask the group's first process to end, if it runs, and then kill the rest of the group."""
    if grace_s and not streams.exited.is_set():
        signal_group(group.get_pid(), signal.SIGTERM)
        await streams.has_exited(grace_s)
    signal_group(group.get_pid(), signal.SIGKILL)
    await streams.close(group)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal if any process of the group is left."""
    with suppress(ProcessLookupError, PermissionError):  # macOS raises the second for a group that has ended
        os.killpg(group, number)
