"""Runs an MCP server as a child process with its own process group. Messages are JSON lines over its standard streams.

The SDK's transport is not used: it does not limit a line, and notices the end of a server only at the next call.
"""

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCRequest

from orga.activities.adapters.mcp.content import plain_line
from orga.activities.adapters.mcp.lenient_messages import ByteBudget, ByteBudgetExceeded, is_answer, read_message
from orga.activities.adapters.mcp.mcp_settings import ServerSettings
from orga.activities.adapters.process_streams import signal_group

MAX_MESSAGE_BYTES = 16_000_000
"""Bytes of one line. A longer one ends the connection."""

MAX_UNANSWERED = 1_000
"""Requests of a server whose answers it has not read yet. More of them end the connection."""

CLOSE_S = 1.0
"""Seconds from closing the server's input to SIGTERM, and from SIGTERM to SIGKILL."""

_STDERR_LINES = 5

_STDERR_WAIT_S = 0.2
"""Seconds to read the last error output of an ended server. A child of the server may keep the stream open longer."""

_MAX_STDERR_BYTES = 300
_POLL_S = 0.02

ReceivedStream = MemoryObjectSendStream[SessionMessage | Exception]
StdioStreams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class StdioServer:
    """One server process. It runs while its `streams` are in use."""

    def __init__(self, settings: ServerSettings, on_end: Callable[[str], None]) -> None:
        """Prepare the start. `on_end` gets the reason if the server ends before `streams` is left."""
        self._settings = settings
        self._on_end = on_end
        self._stderr_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._is_closing = False
        self._open_requests = 0
        """The number of requests of the server that are not answered yet."""
        self._budget, self._unsolicited = ByteBudget(), ByteBudget()

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[StdioStreams]:
        """Start the server, and end its whole process group afterwards. Raise OSError if it cannot be started."""
        process = await self._start()
        received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
        errors = asyncio.create_task(self._read_stderr(process))
        reader = asyncio.create_task(self._read(process, received, errors))
        writer = asyncio.create_task(self._write(process, sent))
        try:
            yield incoming, outgoing
        finally:
            self._is_closing = True
            with anyio.CancelScope(shield=True):
                await _end_process(process)
                for task in (errors, reader, writer):
                    task.cancel()
                await asyncio.gather(errors, reader, writer, return_exceptions=True)
                for stream in (received, incoming, outgoing, sent):
                    stream.close()

    async def _start(self) -> Process:
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

    async def _read(self, process: Process, received: ReceivedStream, errors: asyncio.Task[None]) -> None:
        """Pass the server's messages on until its output ends. Ignore other lines, such as a banner."""
        assert process.stdout
        why = "it closed its output"
        try:
            async with received:
                while line := await process.stdout.readline():
                    if (message := await self._checked_message(line)) is None:
                        await asyncio.sleep(0)  # without this, a flood of ignored lines would block the worker
                        continue
                    if isinstance(message, JSONRPCRequest):
                        self._open_requests += 1
                    if self._open_requests > MAX_UNANSWERED:
                        why = "it keeps sending requests and reads no answer"
                        break
                    await received.send(SessionMessage(message))
        except ByteBudgetExceeded as error:
            why = str(error)
        except RecursionError:
            why = "it sent a message that is nested too deep"
        except ValueError:
            why = f"it sent a line of more than {MAX_MESSAGE_BYTES} bytes"
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            why = f"its output failed: {type(error).__name__}"
        await asyncio.wait((errors,), timeout=_STDERR_WAIT_S)
        if not self._is_closing:
            line = next((line for line in reversed(self._stderr_lines) if line.strip()), "")
            shown = plain_line(self._settings.secrets.redact(line), _MAX_STDERR_BYTES)
            self._on_end(": ".join(filter(None, (why, shown))))

    async def _checked_message(self, line: bytes) -> JSONRPCMessage | None:
        """Return the message of a line, or None. Call `on_end` before raising, so that waiting calls see the reason."""
        try:
            self._budget.spend(len(line))
            message, _ = await read_message(line)
            if message is not None and not is_answer(message):
                self._unsolicited.spend_unsolicited(len(line))
        except ByteBudgetExceeded as error:
            self._on_end(str(error))
            raise
        return message

    async def _write(self, process: Process, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert process.stdin
        async with sent:
            async for message in sent:
                if isinstance(message.message, JSONRPCRequest):
                    self._budget.grant()
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    process.stdin.write(text.encode() + b"\n")
                    await process.stdin.drain()
                except OSError:
                    return  # the reader reports that the server is gone
                if is_answer(message.message):
                    self._open_requests -= 1

    async def _read_stderr(self, process: Process) -> None:
        assert process.stderr
        while data := await process.stderr.read(4096):
            self._stderr_lines.extend(data.decode("utf-8", "replace").splitlines())


async def _end_process(process: Process) -> None:
    """End the server as the protocol requires: close its input, then send SIGTERM, then SIGKILL, to the whole group."""
    assert process.stdin
    process.stdin.close()
    if not await _has_exited(process, CLOSE_S):
        signal_group(process.pid, signal.SIGTERM)
        await _has_exited(process, CLOSE_S)
    signal_group(process.pid, signal.SIGKILL)
    await _has_exited(process, CLOSE_S)
    transport = cast("asyncio.SubprocessTransport", process._transport)  # pyright: ignore
    transport.close()  # otherwise asyncio logs a warning if other processes still hold the pipes


async def _has_exited(process: Process, within_s: float) -> bool:
    """Return whether the process exits in time. `Process.wait` would also wait for its children that hold the pipes."""
    deadline = anyio.current_time() + within_s
    while process.returncode is None and anyio.current_time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
    return process.returncode is not None
