"""Process groups: signalled and ended as a whole."""

import asyncio
import os
import signal
from contextlib import suppress

from orga.activities.adapters.process_streams import ProcessStreams


async def end_group(group: asyncio.SubprocessTransport, streams: ProcessStreams, grace_s: float) -> None:
    """Kill what is left of a group; its first process, while it runs, is asked to end first."""
    if grace_s and not streams.exited.is_set():
        signal_group(group.get_pid(), signal.SIGTERM)
        await streams.has_exited(grace_s)
    signal_group(group.get_pid(), signal.SIGKILL)
    await streams.close(group)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal, if any of the group is left."""
    with suppress(ProcessLookupError, PermissionError):  # macOS says the second of one that has ended
        os.killpg(group, number)
