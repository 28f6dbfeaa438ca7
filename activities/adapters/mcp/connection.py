"""One server, connected again and again by one task, which alone opens and closes: the SDK's scopes demand it."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any

import anyio
from mcp import Client, ClientSession, MCPError
from mcp.client.session import IncomingMessage
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    ToolListChangedNotification,
)
from pydantic import TypeAdapter, ValidationError

from activities.adapters.mcp.backoff import delay_s
from activities.adapters.mcp.definitions import Definitions, definitions
from activities.adapters.mcp.failures import bad_result, protocol_failure, unavailable
from activities.adapters.mcp.http_server import NOT_SENT, http_streams
from activities.adapters.mcp.listing import listed_tools
from activities.adapters.mcp.settings import ServerSettings
from activities.adapters.mcp.stdio import StdioServer

CLOSE_S = 5.0
"""What a connection gets to end in."""

STOP_S = CLOSE_S + 2.0

WAIT_S = 8.0
"""How long a call waits for a connection that is being made."""

FRESH_S = 30.0
"""Age from which a list of tools is asked for anew before a call."""

PROOF_S = 5.0
"""What a server gets to show that it lives, after a call that it did not answer in time."""

STABLE_S = 60.0
"""A connection that lasted as long is no failure when it ends."""

Progress = Callable[[float, float | None, str | None], Awaitable[None]]

_logger = logging.getLogger(__name__)
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
_CLIENT = Implementation(name="orga", version=version("orga"))


class Connection:
    """A server's session, its tools as last listed, and the task that keeps both."""

    def __init__(self, settings: ServerSettings, taken: Collection[str]) -> None:
        """Prepare; `taken` are names that its tools cannot have."""
        self.settings = settings
        self.known: Definitions | None = None
        """As last listed; None until it was connected once."""
        self.why = "it was not started"
        """Why there is no session."""
        self._taken = taken
        self._session: ClientSession | None = None
        self._stdio: StdioServer | None = None
        self._scope: anyio.CancelScope | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._listing = asyncio.Lock()
        self._listed_at = -math.inf
        self._lost = self._in_doubt = self._has_served = False
        self._in_flight = 0

    def start(self) -> None:
        """Begin to connect."""
        self._task = asyncio.create_task(self._keep(), name=f"mcp-{self.settings.name}")

    async def stop(self) -> None:
        """Close; within a few seconds, whatever the server does."""
        self._stopping.set()
        self._wake.set()
        if self._scope and not self._session:
            self._scope.cancel()
        if self._task:
            await asyncio.wait((self._task,), timeout=STOP_S)
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)

    async def settled(self, within_s: float) -> None:
        """Wait until a connection that is being made is there, or has failed."""
        try:
            await asyncio.wait_for(self._settled.wait(), within_s)
        except TimeoutError:
            return

    async def current(self) -> Definitions:
        """Return the tools as the server lists them now, or did a moment ago.

        Raises:
            ToolError: There is no connection.
        """
        session = await self._ready()
        async with self._listing:
            if time.monotonic() - self._listed_at > FRESH_S or self.known is None:
                try:
                    await self._list(session)
                except (MCPError, ValidationError, RuntimeError) as error:
                    self._give_up(f"its tools cannot be listed: {_told(error)}")
                    raise unavailable(self.settings.name, self.why) from None
            assert self.known
            return self.known

    async def call(self, request: CallToolRequestParams, on_progress: Progress) -> CallToolResult:
        """Carry out one call; cancelling it cancels the request at the server.

        Raises:
            ToolError: No connection, no result, or an error of the protocol.
        """
        session = await self._ready()
        self._in_flight += 1
        try:
            result = await session.send_request(
                CallToolRequest(params=request), _RESULT, progress_callback=on_progress
            )
        except MCPError as error:
            raise self._failed(error) from None
        except ValidationError:
            raise bad_result(self.settings.name, "answered with what is no result of a tool") from None
        except asyncio.CancelledError:
            self._in_doubt = True
            raise
        finally:
            self._in_flight -= 1
            self._wake.set()
        if isinstance(result, InputRequiredResult):
            raise bad_result(self.settings.name, "asks for input, which nobody can give it here")
        self._has_served = True
        return result

    def _failed(self, error: MCPError) -> Exception:
        if error.code == NOT_SENT or "Session terminated" in error.message:
            self._give_up(_told(error))
            return unavailable(self.settings.name, self.why)
        if error.code == CONNECTION_CLOSED:
            self._give_up(_told(error))
        return protocol_failure(self.settings.name, error)

    async def _ready(self) -> ClientSession:
        await self.settled(WAIT_S)
        if self._session is None or self._lost:
            raise unavailable(self.settings.name, self.why)
        return self._session

    async def _keep(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            self._settled.clear()
            self._lost = self._in_doubt = self._has_served = False
            await self._connected_once()
            is_stable = self._has_served or (self.known and time.monotonic() - began > STABLE_S)
            failures = 0 if is_stable else failures + 1
            if self._stopping.is_set():
                break
            pause_s = delay_s(failures)
            _logger.warning("MCP server %s: %s; again in %g s", self.settings.name, self.why, pause_s)
            if pause_s:
                self._settled.set()
                await self._pause(pause_s)
        self.why = "the worker stops"
        self._settled.set()

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _connected_once(self) -> None:
        """Connect, and keep the session until something ends it; `why` then says what."""
        self.why = "it is being connected to"
        limit_s = self.settings.server.connect_timeout_s
        with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as self._scope:
            try:
                async with Client(
                    self._transport(), cache=None, client_info=_CLIENT, message_handler=self._hear
                ) as client:
                    await self._list(client.session)
                    self._scope.deadline = math.inf
                    self._open(client)
                    await self._until_over(client.session)
                    self._session = None
                    self._scope.deadline = anyio.current_time() + CLOSE_S
            except Exception as error:
                self._give_up(_told(error), self._stdio.last_words if self._stdio else "")
        if self._scope.cancelled_caught and not self._lost:
            self._give_up(f"it was not ready within {limit_s:g} s")
        self._session = self._scope = None

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        if self.settings.server.url:
            return http_streams(self.settings)
        self._stdio = StdioServer(self.settings, self._give_up)
        return self._stdio.streams()

    def _open(self, client: Client) -> None:
        self._session = client.session
        self._settled.set()
        known = self.known.offered if self.known else {}
        _logger.info("MCP server %s: %d tools, protocol %s", self.settings.name, len(known), client.protocol_version)

    async def _until_over(self, session: ClientSession) -> None:
        while not (self._stopping.is_set() or self._lost):
            await self._wake.wait()
            self._wake.clear()
            if self._in_doubt and not self._in_flight:
                await self._prove(session)

    async def _prove(self, session: ClientSession) -> None:
        """Ask a server for a sign of life; one that gives none is given up."""
        self._in_doubt = False
        with anyio.move_on_after(PROOF_S):
            await self._list(session)
            return
        self._give_up("it does not answer")

    async def _list(self, session: ClientSession) -> None:
        listed = await listed_tools(session)
        before = self.known
        self.known = definitions(self.settings, listed, self._taken)
        self._listed_at = time.monotonic()
        for name, why in self.known.left_out.items():
            if before is None or name not in before.left_out:
                _logger.warning("MCP server %s: %s is left out: %s", self.settings.name, name, why)

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._listed_at = -math.inf

    def _give_up(self, why: str, last_words: str = "") -> None:
        """Note that the session is of no use any more; the first reason counts."""
        if self._lost:
            return
        self._lost = True
        text = f"{why}: {last_words}" if last_words else why
        self.why = self.settings.without_secrets(text)
        if not self._stopping.is_set():
            self._settled.clear()  # a call waits for the next connection
        self._wake.set()


def _told(error: BaseException) -> str:
    """Return the innermost error of a group as one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    line = " ".join(str(error).split())[:300]
    return line if isinstance(error, MCPError) else f"{type(error).__name__}: {line}"
