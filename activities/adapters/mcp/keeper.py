"""Keeps an MCP session open, and reconnects with a growing delay. One task opens and closes it, as the SDK requires."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import Any, cast

import anyio
from mcp import Client, ClientSession, MCPError
from mcp.client.session import ElicitationFnT, MessageHandlerFnT
from mcp_types import ClientCapabilities, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from orga.activities.adapters.mcp.http_server import http_streams
from orga.activities.adapters.mcp.lenient_messages import make_lenient
from orga.activities.adapters.mcp.mcp_settings import ServerSettings
from orga.activities.adapters.mcp.stdio import StdioServer
from orga.activities.ports import ToolError

UNAVAILABLE = "McpUnavailable"
"""Kind of the error if the server cannot be reached. The call was not sent."""


def unavailable_error(server: str, why: str) -> ToolError:
    text = f"the MCP server {server!r} is unavailable ({why}); use another tool, or go on without it"
    return ToolError(text, kind=UNAVAILABLE, retryable=True, acted="no")


FIRST_DELAY_S = 0.25
"""Seconds before the connection after the first failure. Each further failure doubles them."""
MAX_DELAY_S = 60.0


def reconnect_delay_s(failures: int) -> float:
    """Return the delay after this number of consecutive failures."""
    if not failures:
        return 0.0
    doublings = min(failures, 20) - 1  # the limit only avoids huge numbers
    return min(FIRST_DELAY_S * 2**doublings, MAX_DELAY_S)


CLOSE_S = 5.0
"""Seconds to close a connection."""

STOP_S = CLOSE_S + 2.0
"""Seconds to stop a keeper: the time to close its connection, and a moment for its task."""

WAIT_S = 8.0
"""Seconds that a call waits for a new connection."""

PROOF_S = 5.0
"""Seconds for a server to answer the check that follows an unanswered call."""

LONG_PAUSE_S = 1.0
"""Seconds. If the delay before the next connection is at least this long, calls fail at once instead of waiting."""

STABLE_S = 60.0
"""Seconds. If a connection lasted longer than this, its end does not count as a failure."""

_logger = logging.getLogger(__name__)
_CLIENT_INFO = Implementation(name="orga", version=version("orga"))


class _ClientWithoutQuestions(Client):
    """A client that does not offer to ask people, if the server's protocol is older than 2026-07-28.

    It is used for servers whose calls may not be repeated. Without a repetition, the answer of a person cannot reach
    the server, and a server that expects an answer may refuse the call.
    """

    async def _build_session(self, exit_stack: AsyncExitStack) -> ClientSession:
        session = await super()._build_session(exit_stack)
        build = session._build_capabilities

        def capabilities(version: str) -> ClientCapabilities:
            return build(version) if version in MODERN_PROTOCOL_VERSIONS else ClientCapabilities()

        session._build_capabilities = capabilities
        return session


class SessionKeeper:
    """Keeps a session with a server, or the reason why there is none."""

    def __init__(
        self,
        settings: ServerSettings,
        check: Callable[[ClientSession], Awaitable[object]],
        handle_message: MessageHandlerFnT,
        answer: ElicitationFnT,
    ) -> None:
        """Prepare the keeper.

        Args:
            check: Called with each new session, and with one in doubt. Raises if the session is useless.
            handle_message: Called with the server's notifications.
            answer: Called with the requests to people that the server makes during a call.
        """
        self.why = "it was not started"
        """The reason if there is no session."""
        self.has_served = False
        """True after the session answered a call."""
        self.asks_during_calls = False
        """True if the session's protocol lets servers ask people in the middle of a call."""
        self._settings = settings
        self._check = check
        self._handle_message = handle_message
        self._answer = answer
        self._session: ClientSession | None = None
        self._scope: anyio.CancelScope | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        """Set while no call needs to wait: there is a connection, or there will be none for a while."""
        self._wake = asyncio.Event()
        """Wakes the task that keeps the session, so that it checks the flags below."""
        self._stopping = asyncio.Event()
        self.is_lost = False
        """True if the session has become useless. `why` is the reason."""
        self._is_in_doubt = False
        self._in_flight = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_connected(), name=f"mcp-{self._settings.name}")

    async def stop(self) -> None:
        """Close the session within a few seconds, whatever the server does."""
        self._stopping.set()
        self._wake.set()
        if self._scope and not self._session:  # it is being connected to. An open session ends by the events
            self._scope.cancel()
        if self._task:
            await asyncio.wait((self._task,), timeout=STOP_S)
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)

    async def wait_until_settled(self, within_s: float) -> None:
        """Wait until a new connection is ready or has failed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), within_s)

    async def ready_session(self) -> ClientSession:
        """Return the session, after waiting for a new connection. Raise ToolError if there is none."""
        await self.wait_until_settled(WAIT_S)
        if self._session is None or self.is_lost:
            raise unavailable_error(self._settings.name, self.why)
        return self._session

    @contextmanager
    def count_call(self) -> Generator[None]:
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._wake.set()

    def request_proof(self) -> None:
        """After an unanswered call, check that the server is alive as soon as no call is in flight."""
        self._is_in_doubt = True
        self._wake.set()

    @property
    def is_open(self) -> bool:
        """True if there is a session that works, as far as is known."""
        return self._session is not None and not self.is_lost

    def give_up(self, why: str) -> None:
        """Mark the session as useless. The first reason counts."""
        if self.is_lost:
            return
        self.is_lost = True
        self.why = self._settings.secrets.redact(why)
        if not self._stopping.is_set():
            self._settled.clear()  # new calls wait for the next connection
        self._wake.set()

    async def _keep_connected(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            self._settled.clear()
            self.is_lost = self._is_in_doubt = self.has_served = False
            was_open = await self._connect_once()
            was_useful = self.has_served or (was_open and time.monotonic() - began > STABLE_S)
            failures = 0 if was_useful else failures + 1
            if not self._stopping.is_set():
                await self._pause(reconnect_delay_s(failures))
        self.why = "the worker stops"
        self._settled.set()

    async def _pause(self, seconds: float) -> None:
        _logger.warning("MCP server %s: %s; again in %g s", self._settings.name, self.why, seconds)
        if seconds >= LONG_PAUSE_S:
            self._settled.set()  # calls fail at once instead of waiting so long
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _connect_once(self) -> bool:
        """Connect, and keep the session until it ends. Set `why` to the reason. Return whether there was a session."""
        self.why = "it is being connected to"
        limit_s = self._settings.server.connect_timeout_s
        was_open = False
        with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as self._scope:
            try:
                client_class = Client if self._settings.may_repeat_calls else _ClientWithoutQuestions
                async with client_class(
                    self._transport(),
                    cache=None,
                    client_info=_CLIENT_INFO,
                    message_handler=self._handle_message,
                    elicitation_callback=self._answer,
                ) as client:
                    make_lenient(client.session)
                    await self._check(client.session)
                    self._scope.deadline = math.inf  # the time limit was only for the connection
                    self._session, version = client.session, client.protocol_version
                    was_open = True
                    self.asks_during_calls = version not in MODERN_PROTOCOL_VERSIONS
                    self._settled.set()
                    _logger.info("MCP server %s: connected, protocol %s", self._settings.name, version)
                    await self._wait_until_over(client.session)
                    self._session = None
                    self._scope.deadline = anyio.current_time() + CLOSE_S
            except Exception as error:
                self.give_up(connection_error_text(error))
        if self._scope.cancelled_caught and not self.is_lost:
            self.give_up(f"it was not ready within {limit_s:g} s")
        self._session = self._scope = None
        return was_open

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        if self._settings.server.url:
            return http_streams(self._settings, self.give_up)
        return StdioServer(self._settings, self.give_up).streams()

    async def _wait_until_over(self, session: ClientSession) -> None:
        while not (self._stopping.is_set() or self.is_lost):
            await self._wake.wait()
            self._wake.clear()
            if self._is_in_doubt and not self._in_flight:
                await self._check_alive(session)

    async def _check_alive(self, session: ClientSession) -> None:
        self._is_in_doubt = False
        with anyio.move_on_after(PROOF_S):
            try:
                await self._check(session)
            except Exception as error:  # a server can cause any error, and the session must still be closed
                self.give_up(connection_error_text(error))
            return
        self.give_up("it does not answer")


def connection_error_text(error: BaseException) -> str:
    """Return the error as one line. A group counts as its first error."""
    if isinstance(error, BaseExceptionGroup):
        return connection_error_text(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    if isinstance(error, OSError) and error.filename:  # the program, its folder, or a file of certificates
        return f"{error.filename} cannot be used: {error.strerror}. Install it, or correct its path"
    line = " ".join(str(error).split())[:300]
    return line if isinstance(error, MCPError) else f"{type(error).__name__}: {line}"
