"""An MCP server as a child process: JSON lines over its standard streams, in a process group that ends with it.

The SDK's own transport neither bounds a line nor hears of a server's death before the next call.
"""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from activities.adapters.mcp.settings import ServerSettings

MAX_MESSAGE_BYTES = 16_000_000
"""Of one line; a server that sends a longer one is given up."""

CLOSE_S = 1.0
"""From the end of its input to SIGTERM, and from there to SIGKILL."""

_STDERR_LINES = 5
_STDERR_CHARS = 300
_POLL_S = 0.02

Received = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class StdioServer:
    """A running server."""

    def __init__(self, settings: ServerSettings, on_end: Callable[[str], None]) -> None:
        """Prepare to start it; `on_end` hears why it has ended."""
        self._settings = settings
        self._on_end = on_end
        self._last_words: deque[str] = deque(maxlen=_STDERR_LINES)

    @property
    def last_words(self) -> str:
        """The last line that it wrote to its standard error, without secrets."""
        line = next((line for line in reversed(self._last_words) if line.strip()), "")
        return self._settings.without_secrets(line.strip())[:_STDERR_CHARS]

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Streams]:
        """Start the server; end its whole process group afterwards.

        Raises:
            OSError: It cannot be started.
        """
        process = await self._started()
        received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
        pumps = [
            asyncio.create_task(pump)
            for pump in (self._read(process, received), _write(process, sent), self._listen(process))
        ]
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                await _ended(process)
                await _cancelled(pumps)
                for stream in (received, incoming, outgoing, sent):
                    stream.close()

    async def _started(self) -> Process:
        server = self._settings.server
        return await asyncio.create_subprocess_exec(
            server.command or "",
            *server.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=dict(self._settings.environment),
            cwd=server.cwd,
            start_new_session=True,
            limit=MAX_MESSAGE_BYTES,
        )

    async def _read(self, process: Process, received: Received) -> None:
        """Hand over what is a message; a banner is none."""
        assert process.stdout
        why = "it closed its output"
        try:
            async with received:
                while line := await process.stdout.readline():
                    with suppress(ValidationError):
                        await received.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
        except ValueError:
            why = f"it sent a line of more than {MAX_MESSAGE_BYTES} bytes"
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            why = f"its output broke off: {type(error).__name__}"
        self._on_end(why)

    async def _listen(self, process: Process) -> None:
        assert process.stderr
        while data := await process.stderr.read(4096):
            self._last_words.extend(data.decode("utf-8", "replace").splitlines())


async def _write(process: Process, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin
    async with sent:
        async for message in sent:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
            except OSError:
                return  # the reader tells that the server is gone


async def _ended(process: Process) -> None:
    """End the server as the protocol says: its input ends, then SIGTERM, then SIGKILL, to the whole group."""
    assert process.stdin
    process.stdin.close()
    if not await _has_exited(process, CLOSE_S):
        _signal(process, signal.SIGTERM)
        await _has_exited(process, CLOSE_S)
    _signal(process, signal.SIGKILL)
    await _has_exited(process, CLOSE_S)
    transport: asyncio.SubprocessTransport = process._transport  # pyright: ignore
    transport.close()


async def _has_exited(process: Process, within_s: float) -> bool:
    """Return whether it has exited; `Process.wait` would wait for whoever else holds its pipes."""
    deadline = anyio.current_time() + within_s
    while process.returncode is None and anyio.current_time() < deadline:
        await asyncio.sleep(_POLL_S)
    return process.returncode is not None


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
