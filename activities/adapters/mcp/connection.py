"""The connection to one MCP server. It lists the server's tools page by page, and calls them."""

import asyncio
import logging
import math
import time
from collections.abc import Collection

from mcp import ClientSession, MCPError
from mcp.client.session import IncomingMessage
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    PaginatedRequestParams,
    Tool,
    ToolListChangedNotification,
)
from pydantic import TypeAdapter, ValidationError

from orga.activities.adapters.mcp.definitions import ToolDefinitions, usable_definitions
from orga.activities.adapters.mcp.elicitation import UnusableRequest, asked_inputs
from orga.activities.adapters.mcp.failures import bad_result_error, protocol_error, unavailable_error
from orga.activities.adapters.mcp.http_server import was_not_sent, was_refused
from orga.activities.adapters.mcp.keeper import SessionKeeper, connection_error_text
from orga.activities.adapters.mcp.lenient_messages import omitted_tools
from orga.activities.adapters.mcp.mcp_settings import ServerSettings
from orga.activities.adapters.mcp.reading import read_from_server, reading_tools
from orga.activities.ports import InputRequired, ToolError

MAX_TOOLS = 1_000
MAX_PAGES = 100
MAX_BYTES = 16_000_000
"""Bytes of all pages together. A page can be as large as one message."""


async def list_server_tools(session: ClientSession) -> tuple[list[Tool], dict[str, str]]:
    """Return the tools in the server's order, and why others are left out. Listing stops at the limits."""
    tools: list[Tool] = []
    left_out: dict[str, str] = {}
    size, cursor, requested = 0, None, set[str | None]()
    while cursor not in requested and len(requested) < MAX_PAGES:
        requested.add(cursor)
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += page.tools
        left_out |= omitted_tools(page)
        size, cursor = size + len(page.model_dump_json(exclude_unset=True)), page.next_cursor
        if not cursor or len(tools) >= MAX_TOOLS or size >= MAX_BYTES:
            break
    return tools[:MAX_TOOLS], left_out


FRESH_S = 30.0
"""Seconds after which the list of tools is requested again before a call."""

_logger = logging.getLogger(__name__)
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)


class McpConnection:
    """A server's last list of tools, and the session for calls."""

    def __init__(self, settings: ServerSettings, taken: Collection[str]) -> None:
        """Prepare the connection. Its tools cannot have the names in `taken`."""
        self.settings = settings
        self.keeper = SessionKeeper(settings, self._list, self._handle_message)
        self.known: ToolDefinitions | None = None
        """The last list of tools, or None before the first connection."""
        self._taken = taken
        self._listing = asyncio.Lock()
        self._listed_at = -math.inf
        self._reading: frozenset[str] = frozenset()
        """The tools of the last list that read resources and prompts."""
        self._changes = 0
        """How often the server has notified us of a changed list."""

    async def current(self) -> ToolDefinitions:
        """Return the server's list of tools, at most `FRESH_S` old. Raise ToolError if there is no connection."""
        session = await self.keeper.ready_session()
        async with self._listing:
            if self.known is None or time.monotonic() - self._listed_at > FRESH_S:
                return await self._relist(session)
            return self.known

    async def call(self, request: CallToolRequestParams, on_progress: ProgressFnT) -> CallToolResult:
        """Carry out one call. Cancelling it also cancels the request at the server.

        Raises:
            ToolError: There is no connection, no valid result, or the server answered with an error.
        """
        session = await self.keeper.ready_session()
        wanted = CallToolRequest(params=request)
        try:
            with self.keeper.count_call():
                if request.name in self._reading:
                    result = await read_from_server(session, request.name, request.arguments or {})
                else:
                    result = await session.send_request(wanted, _RESULT, progress_callback=on_progress)
        except MCPError as error:
            raise self._failure(error) from None
        except ValidationError:
            raise bad_result_error(self.settings.name, "did not return a tool result") from None
        except asyncio.CancelledError:
            self.keeper.request_proof()
            raise
        if result is None:
            raise bad_result_error(self.settings.name, "asks for input, which only its tools can")
        if isinstance(result, InputRequiredResult):
            self.keeper.has_served = True
            raise self._input_required(result)
        self.keeper.has_served = True
        return result

    def _input_required(self, result: InputRequiredResult) -> ToolError:
        name = self.settings.name
        try:
            asked = asked_inputs(name, result, self.settings.secrets)
        except UnusableRequest as unusable:
            return bad_result_error(name, f"asks for input that no person is asked for: {unusable}")
        return InputRequired(f"the MCP server {name!r} needs input from a person", asked)

    def _failure(self, error: MCPError) -> ToolError:
        if error.code != CONNECTION_CLOSED and not was_not_sent(error):
            return protocol_error(self.settings.name, error, error.message, is_refusal=was_refused(error))
        if was_not_sent(error):
            self.keeper.give_up(connection_error_text(error))
            return unavailable_error(self.settings.name, self.keeper.why)
        if self.settings.server.url:
            self.keeper.request_proof()  # over HTTP one request can fail alone, and others may still be answered
        else:
            self.keeper.give_up(connection_error_text(error))
        why = self.keeper.why if self.keeper.is_lost else self.settings.secrets.redact(connection_error_text(error))
        return protocol_error(self.settings.name, error, why, is_refusal=was_refused(error))

    async def _relist(self, session: ClientSession) -> ToolDefinitions:
        try:
            return await self._list(session)
        except (MCPError, ValidationError, RuntimeError) as error:
            self.keeper.give_up(f"its tools cannot be listed: {connection_error_text(error)}")
            raise unavailable_error(self.settings.name, self.keeper.why) from None
        except asyncio.CancelledError:
            self.keeper.request_proof()
            raise

    async def _list(self, session: ClientSession) -> ToolDefinitions:
        asked_at, changes = time.monotonic(), self._changes
        listed, faulty = await list_server_tools(session)
        reading = reading_tools(self.settings.server, {*faulty, *(tool.name for tool in listed)})
        self._reading, listed = frozenset(tool.name for tool in reading), [*listed, *reading]
        before = self.known
        self.known = await asyncio.to_thread(usable_definitions, self.settings, listed, self._taken, faulty)
        self._listed_at = asked_at if changes == self._changes else -math.inf
        self._log_changes(before or ToolDefinitions({}, {}), self.known)
        return self.known

    def _log_changes(self, before: ToolDefinitions, after: ToolDefinitions) -> None:
        if before.offered.keys() != after.offered.keys():
            _logger.info("MCP server %s: %d tools", self.settings.name, len(after.offered))
        for name in after.left_out.keys() - before.left_out.keys():
            _logger.warning("MCP server %s: %s is left out: %s", self.settings.name, name, after.left_out[name])

    async def _handle_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._changes += 1
            self._listed_at = -math.inf
