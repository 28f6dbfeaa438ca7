"""The outputs of a process, read to their end but kept only up to a limit."""

import asyncio

from activities.adapters.tools.head_tail import HeadTail


class Streams(asyncio.SubprocessProtocol):
    """Unlike `Process.communicate`, tells the exit of a process from the end of its outputs, held open by others."""

    def __init__(self, head: int, tail: int, *, merged: bool) -> None:
        """Keep a head and a tail of each; merged, there is one output."""
        self.outputs = {1: HeadTail(head, tail), 2: HeadTail(head, tail)}
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()
        self.merged = merged
        self._open = 1 if merged else 2

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep a piece of output."""
        self.outputs[fd].add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note that nobody holds an output open any more."""
        self._open -= fd in self.outputs
        if not self._open:
            self.drained.set()

    def process_exited(self) -> None:
        """Note that the process has ended."""
        self.exited.set()
