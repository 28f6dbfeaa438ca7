"""All MCP servers of a worker as one source of tools, which may change. A server delays a start by seconds at most."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from mcp_types import CallToolRequestParams

from orga.activities.adapters.mcp.connection import McpConnection
from orga.activities.adapters.mcp.content import plain_line, result_output, value_output
from orga.activities.adapters.mcp.definitions import McpOfferedTool
from orga.activities.adapters.mcp.elicitation import CallInFlight, input_responses
from orga.activities.adapters.mcp.keeper import UNAVAILABLE
from orga.activities.adapters.mcp.mcp_settings import CallerSecrets, ServerSettings
from orga.activities.ports import AbsentTool, InputRequired, Tool, ToolContext, ToolError
from orga.workflows.types.questions import GivenInputs
from orga.workflows.types.tool_calls.mcp import meant_server
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput, ToolSpec

KEY_META = "orga/idempotency-key"
"""Key in the `_meta` of a request. Its value is the idempotency key, which all attempts of a call share."""

CHANGED = "McpToolChanged"
"""Kind of the error if the tool is gone, or differs from the tool that was offered to the run."""

REPORTED = "McpToolError"
"""Kind of the error if the server reports that the call failed."""

_MAX_NOTE_BYTES = 200

IDLE_S = 300.0
"""Seconds. A caller's connection is closed this long after its last call."""

MAX_IDLE = 50
"""Idle connections of callers to one server. If there are more, those that are idle longest are closed."""


@dataclass
class _CallerConnection:
    """A connection with one caller's secrets, and the number of calls that use it."""

    connection: McpConnection
    calls: int = 0
    closing: asyncio.TimerHandle | None = None
    """The timer that closes the connection after IDLE_S."""


class McpServerConnections:
    """The connections to one server: the worker's own, which lists the tools, and one for each caller with a secret."""

    def __init__(self, settings: ServerSettings, taken: Collection[str]) -> None:
        """Prepare the connections. The server's tools cannot have the names in `taken`."""
        self.own = McpConnection(settings, taken)
        self._settings = settings
        self._taken = taken
        self._by_caller: dict[CallerSecrets, _CallerConnection] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def for_call(self, context: ToolContext) -> AsyncGenerator[McpConnection]:
        """Yield the connection for a call. If secrets depend on the caller, only calls with the same secrets share it.

        Raise ToolError (NoCredentials) if the caller lacks a secret.
        """
        if not self._settings.by_caller:
            yield self.own
            return
        key = await asyncio.to_thread(self._settings.caller_secrets, context)
        if key not in self._by_caller:
            connection = McpConnection(self._settings.for_caller(key), self._taken)
            connection.keeper.start()
            self._by_caller[key] = _CallerConnection(connection)
        used = self._by_caller[key]
        used.calls += 1
        if used.closing:
            used.closing.cancel()
        try:
            yield used.connection
        finally:
            used.calls -= 1
            is_kept = self._by_caller.get(key) is used  # `stop` may have closed it meanwhile
            if is_kept and not used.calls:
                self._keep_or_close(key, used)

    async def stop(self) -> None:
        for key in [*self._by_caller]:
            self._close(key)
        await asyncio.gather(self.own.keeper.stop(), *self._ending)

    def _keep_or_close(self, key: CallerSecrets, idle: _CallerConnection) -> None:
        """Keep a working connection for the caller's next call. If too many are idle, close those idle longest."""
        if not idle.connection.keeper.is_open:
            self._close(key)
            return
        self._by_caller[key] = self._by_caller.pop(key)  # moves it to the end, so that the order is by idle time
        idle.closing = asyncio.get_running_loop().call_later(IDLE_S, self._close, key)
        idle_keys = [other for other, connection in self._by_caller.items() if not connection.calls]
        for oldest in idle_keys[:-MAX_IDLE]:
            self._close(oldest)

    def _close(self, key: CallerSecrets) -> None:
        closed = self._by_caller.pop(key)
        if closed.closing:
            closed.closing.cancel()
        ending = asyncio.create_task(closed.connection.keeper.stop())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


class McpTool:
    """One tool, by the legal name that models and policies accept, with the definition that a run was offered."""

    def __init__(self, server: McpServerConnections, name: str, digest: str) -> None:
        self._server = server
        self._name = name
        self._digest = digest
        self.spec = ToolSpec(name=name, options=server.own.settings.options(name), digest=digest)
        """The definition. Until the first call it has only the name, the options and the digest."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Carry out one call. Raise ToolError if the definition is no longer the one that the run was offered."""
        async with self._server.for_call(context) as connection:
            try:
                return await self._call_with_retry(connection, arguments, context)
            except InputRequired:
                raise  # its texts have no secrets
            except ToolError as error:
                raise connection.settings.secrets.redact_error(error) from None

    async def _call_with_retry(
        self, connection: McpConnection, arguments: dict[str, Any], context: ToolContext
    ) -> ToolOutput:
        """Call the tool. If the call was not sent because the session was over, try once more."""
        try:
            return await self._call_once(connection, arguments, context)
        except ToolError as error:
            if error.kind != UNAVAILABLE:
                raise
        return await self._call_once(connection, arguments, context)

    async def _call_once(
        self, connection: McpConnection, arguments: dict[str, Any], context: ToolContext
    ) -> ToolOutput:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            text = connection.settings.secrets.redact(f"{message or ''} {share}")
            context.heartbeat(plain_line(text, _MAX_NOTE_BYTES))

        offered = await self._current_definition(connection)
        self.spec, own_name = offered.spec, offered.own_name
        given = context.given or GivenInputs()
        # If the server asks during the call, `CallInFlight` gives the answers then.
        sends_answers = bool(given.answers) and not connection.keeper.asks_during_calls
        request = CallToolRequestParams(
            name=own_name,
            arguments=arguments,
            input_responses=input_responses(given) if sends_answers else None,
            request_state=given.state,
            _meta={KEY_META: context.idempotency_key},
        )
        call = CallInFlight(given, may_repeat=self.spec.effect != "irreversible")
        result = await connection.call(request, note, call)
        has_value = self.spec.output_schema is not None and not result.is_error
        output = value_output(result) if has_value else result_output(result)
        text = connection.settings.secrets.redact(output.content)
        if call.unanswered:
            text = f"[The server wanted to ask a person, and nobody was asked. {call.unanswered}]\n{text}"
        if result.is_error:
            raise ToolError(text, kind=REPORTED, acted="maybe")
        return output.with_content(text)

    async def _current_definition(self, connection: McpConnection) -> McpOfferedTool:
        definitions = await connection.current()
        offered = definitions.offered.get(self._name)
        if offered is None:
            why = definitions.left_out.get(self._name, "its server does not offer it any more")
            raise ToolError(f"{self._name} cannot be called: {why}", kind=CHANGED)
        if self._digest and offered.spec.digest != self._digest:
            why = "changed since this run began: start a new run or `orga rewind`"
            raise ToolError(f"the definition of {self._name} {why}", kind=CHANGED)
        return offered


START_S = 5.0
"""Seconds that the start of a worker or a run waits for servers. The tools of slower servers are offered later."""


class McpServers:
    """A source of tools. Enter it in the worker's event loop."""

    def __init__(self, settings: Sequence[ServerSettings], taken: Collection[str]) -> None:
        """Prepare the servers. `taken` are the names of the worker's own tools and activities."""
        self._servers = {server.name: McpServerConnections(server, taken) for server in settings}

    async def __aenter__(self) -> "McpServers":
        """Connect to all servers, and wait a short time for them."""
        keepers = [server.own.keeper for server in self._servers.values()]
        for keeper in keepers:
            keeper.start()
        await asyncio.gather(*(keeper.wait_until_settled(START_S) for keeper in keepers))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers.values()))

    async def specs(self, wanted: Collection[str]) -> dict[str, ToolSpec]:
        """Return the tools of all servers. First refresh the lists of the servers whose tools are in `wanted`."""
        names = {meant_server(name, self._servers) for name in wanted}
        await asyncio.gather(
            *(_refresh_connection(server.own) for name, server in self._servers.items() if name in names)
        )
        known = [server.own.known for server in self._servers.values() if server.own.known]
        return {name: offered.spec for definitions in known for name, offered in definitions.offered.items()}

    def absent_tool(self, name: str) -> AbsentTool | None:
        server = meant_server(name, self._servers)
        if server is None:
            return None
        connection = self._servers[server].own
        if connection.known is None:
            return AbsentTool(f"the MCP server {server!r} is unavailable ({connection.keeper.why})", is_temporary=True)
        why = connection.known.left_out.get(name, f"the MCP server {server!r} has no such tool")
        return AbsentTool(why, is_temporary=False)

    def tool(self, name: str, digest: str) -> Tool | None:
        server = meant_server(name, self._servers)
        return McpTool(self._servers[server], name, digest) if server else None

    def options(self, name: str) -> ToolOptions | None:
        server = meant_server(name, self._servers)
        return self._servers[server].own.settings.options(name) if server else None


async def _refresh_connection(connection: McpConnection) -> None:
    try:
        async with asyncio.timeout(START_S):
            await connection.keeper.wait_until_settled(START_S)
            await connection.current()
    except (ToolError, TimeoutError):
        return  # the tools of the last list stay offered; a call of one reports that the server is unavailable
