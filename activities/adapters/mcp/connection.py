"""The connection to one MCP server, used by `servers.py`. It lists the server's tools and calls them."""

import asyncio
import logging
import math
import time
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from mcp import ClientSession, MCPError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ElicitRequestParams,
    ElicitResult,
    EmbeddedResource,
    InputRequiredResult,
    PaginatedRequestParams,
    Prompt,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolListChangedNotification,
)
from pydantic import TypeAdapter, ValidationError

from orga.activities.adapters.mcp.content import plain_line
from orga.activities.adapters.mcp.definitions import ToolDefinitions, usable_definitions
from orga.activities.adapters.mcp.elicitation import CallInFlight, UnusableRequest, asked_inputs
from orga.activities.adapters.mcp.http_server import FINAL_CODES, was_not_sent, was_refused
from orga.activities.adapters.mcp.keeper import SessionKeeper, connection_error_text, unavailable_error
from orga.activities.adapters.mcp.lenient_messages import MAX_TOOLS, omitted_tools
from orga.activities.adapters.mcp.mcp_settings import ServerSettings
from orga.activities.ports import InputRequired, ToolError
from orga.workflows.types.json_text import as_object, as_text
from orga.workflows.types.questions import GivenInputs
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import PROCESS_CRASHED

MAX_PAGES = 100
MAX_PAGES_BYTES = 16_000_000
"""Bytes of all pages together. A page can be as large as one message."""


async def list_server_tools(session: ClientSession) -> tuple[list[Tool], dict[str, str]]:
    """Return the tools in the server's order, and the reason for each omitted tool. Listing stops at the limits."""
    tools: list[Tool] = []
    left_out: dict[str, str] = {}
    size, cursor, requested_cursors = 0, None, set[str | None]()
    while cursor not in requested_cursors and len(requested_cursors) < MAX_PAGES:
        requested_cursors.add(cursor)
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += page.tools
        left_out |= omitted_tools(page)
        size, cursor = size + len(page.model_dump_json(exclude_unset=True)), page.next_cursor
        if not cursor or len(tools) >= MAX_TOOLS or size >= MAX_PAGES_BYTES:
            break
    return tools[:MAX_TOOLS], left_out


FRESH_S = 30.0
"""Seconds after which the list of tools is requested again before a call."""

_logger = logging.getLogger(__name__)
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)


class McpConnection:
    """Holds a server's last list of tools, and the session that carries out calls."""

    def __init__(self, settings: ServerSettings, taken: Collection[str]) -> None:
        """Prepare the connection. Its tools cannot have the names in `taken`."""
        self.settings = settings
        self.keeper = SessionKeeper(settings, self._list, self._handle_message, self._answer_question)
        self._calls: list[CallInFlight] = []
        self.known: ToolDefinitions | None = None
        """The last list of tools, or None before the first connection."""
        self._taken = taken
        self._listing = asyncio.Lock()
        self._listed_at = -math.inf
        self._reading_tools: frozenset[str] = frozenset()
        """The names of our own tools in the last list: they read the server's resources and prompts."""
        self._changes = 0
        """How many times the server notified us that its list changed."""

    async def current(self) -> ToolDefinitions:
        """Return the server's list of tools, at most `FRESH_S` old. Raise ToolError if there is no connection."""
        session = await self.keeper.ready_session()
        async with self._listing:
            if self.known is None or time.monotonic() - self._listed_at > FRESH_S:
                return await self._relist(session)
            return self.known

    async def call(
        self, request: CallToolRequestParams, on_progress: ProgressFnT, call: CallInFlight
    ) -> CallToolResult:
        """Carry out one call. Cancelling it also cancels the request at the server.

        `call` holds people's earlier answers, and collects the requests that the server makes during the call.
        """
        session = await self.keeper.ready_session()
        try:
            with self.keeper.count_call(), self._in_flight(call):
                if request.name in self._reading_tools:
                    result = await _read_from_server(session, request.name, request.arguments or {})
                else:
                    message = CallToolRequest(params=request)
                    result = await session.send_request(message, _RESULT, progress_callback=on_progress)
        except MCPError as error:
            raise self._call_error(error) from None
        except ValidationError:
            raise _bad_result_error(self.settings.name, "did not return a tool result") from None
        except asyncio.CancelledError:
            self.keeper.request_proof()
            raise
        if result is None:
            raise _bad_result_error(self.settings.name, "asks for input, which only its tools can")
        self.keeper.has_served = True
        if isinstance(result, InputRequiredResult):
            raise self._input_required(result, None)
        if call.asked:
            raise self._input_required(InputRequiredResult(input_requests={**call.asked}), call.given)
        return result

    @contextmanager
    def _in_flight(self, call: CallInFlight) -> Generator[None]:
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    async def _answer_question(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Answer a request in the middle of a call. It does not name the call, so only one call may be in flight."""
        if len(self._calls) == 1:
            return self._calls[0].answer(params)
        for call in self._calls:
            call.unanswered = "It does not name the call, and several were in flight; make it alone."
        return ElicitResult(action="cancel")

    def _input_required(self, result: InputRequiredResult, given: GivenInputs | None) -> ToolError:
        name = self.settings.name
        try:
            asked = asked_inputs(name, result, self.settings.secrets, given)
        except UnusableRequest as unusable:
            return _bad_result_error(name, f"asks for input that no person is asked for: {unusable}")
        return InputRequired(f"the MCP server {name!r} needs input from a person", asked)

    def _call_error(self, error: MCPError) -> ToolError:
        name, why = self.settings.name, connection_error_text(error)
        if was_not_sent(error):
            self.keeper.give_up(why)
            return unavailable_error(name, self.keeper.why)
        if error.code != CONNECTION_CLOSED:
            return _protocol_error(name, error, error.message)
        if self.settings.server.url:
            self.keeper.request_proof()  # over HTTP one request can fail while others are still answered
        else:
            self.keeper.give_up(why)
        first_reason = self.keeper.why if self.keeper.is_lost else self.settings.secrets.redact(why)
        return _protocol_error(name, error, first_reason)

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
        began, changes = time.monotonic(), self._changes
        listed, faulty = await list_server_tools(session)
        reading = _reading_tools(self.settings.server, {*faulty, *(tool.name for tool in listed)})
        self._reading_tools = frozenset(tool.name for tool in reading)
        before = self.known or ToolDefinitions({}, {})
        tools = [*listed, *reading]
        self.known = after = await asyncio.to_thread(usable_definitions, self.settings, tools, self._taken, faulty)
        # a list that changed during the listing is requested again before the next call
        self._listed_at = began if changes == self._changes else -math.inf
        if before.offered.keys() != after.offered.keys():
            _logger.info("MCP server %s: %d tools", self.settings.name, len(after.offered))
        for name in after.left_out.keys() - before.left_out.keys():
            _logger.warning("MCP server %s: %s is left out: %s", self.settings.name, name, after.left_out[name])
        return after

    async def _handle_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._changes += 1
            self._listed_at = -math.inf


REFUSED = "McpRequestRefused"
SERVER_FAILED = "McpServerError"
BAD_RESULT = "McpBadResult"

MAX_ERROR_BYTES = 2_000

_REFUSING_CODES = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND})
"""Codes that show that the server did not begin the call. INVALID_REQUEST does not show it: the SDK also uses it for a
redirect, a 202, and an answer that is neither JSON nor an event stream.
"""


def _bad_result_error(server: str, why: str) -> ToolError:
    return ToolError(f"the MCP server {server!r} {why}", kind=BAD_RESULT, acted="maybe")


def _protocol_error(server: str, error: MCPError, why: str) -> ToolError:
    cause = plain_line(why, MAX_ERROR_BYTES)
    if error.code == CONNECTION_CLOSED:
        text = f"the connection to the MCP server {server!r} broke during the call ({cause})"
        return ToolError(text, kind=PROCESS_CRASHED, retryable=True, acted="maybe")
    text = f"the MCP server {server!r} refused the call: {cause}"
    acted = "no" if was_refused(error) or error.code in _REFUSING_CODES else "maybe"
    if error.code in FINAL_CODES:
        return ToolError(text, kind=REFUSED, acted=acted)
    return ToolError(text, kind=SERVER_FAILED, retryable=error.code == INTERNAL_ERROR, acted=acted)


_CURSOR = {"cursor": {"type": "string", "description": "The cursor of the page before. Leave it out at first."}}


def _read_only_tool(name: str, description: str, properties: dict[str, Any], *required: str) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    hints = ToolAnnotations(read_only_hint=True)
    return Tool(name=name, description=description, input_schema=schema, annotations=hints)


_RESOURCE_TOOLS = (
    _read_only_tool("list_resources", "List the documents and data that this server has, each with its URI.", _CURSOR),
    _read_only_tool("read_resource", "Read a resource of this server.", {"uri": {"type": "string"}}, "uri"),
)
_PROMPT_TOOLS = (
    _read_only_tool("list_prompts", "List the prompts that this server has, each with its arguments.", _CURSOR),
    _read_only_tool(
        "get_prompt",
        "Read a prompt of this server, filled with arguments.",
        {"name": {"type": "string"}, "arguments": {"type": "object", "additionalProperties": {"type": "string"}}},
        "name",
    ),
)


def _reading_tools(server: McpServer, own: Collection[str]) -> list[Tool]:
    """Return the reading tools that the settings ask for, without those whose name a tool of the server has (`own`)."""
    wanted = (*(_RESOURCE_TOOLS if server.resources else ()), *(_PROMPT_TOOLS if server.prompts else ()))
    return [tool for tool in wanted if tool.name not in own]


async def _read_from_server(session: ClientSession, name: str, arguments: dict[str, Any]) -> CallToolResult | None:
    """Carry out one of `_reading_tools`. Return None if the server asks for input instead."""
    page = PaginatedRequestParams(cursor=as_text(arguments["cursor"])) if arguments.get("cursor") else None
    blocks = list[ContentBlock]()
    match name:
        case "list_resources":
            listed = await session.list_resources(params=page)
            lines = [
                _line(item.uri, item.title or item.name, item.mime_type, item.description) for item in listed.resources
            ]
            return _page(lines, listed.next_cursor)
        case "list_prompts":
            prompts = await session.list_prompts(params=page)
            lines = [_line(_prompt_signature(item), item.title, item.description) for item in prompts.prompts]
            return _page(lines, prompts.next_cursor)
        case "read_resource":
            resource = await session.read_resource(as_text(arguments.get("uri")), allow_input_required=True)
            if isinstance(resource, InputRequiredResult):
                return None
            blocks += [EmbeddedResource(resource=content) for content in resource.contents]
        case _:
            given = {key: as_text(value) for key, value in as_object(arguments.get("arguments")).items()}
            prompt = await session.get_prompt(as_text(arguments.get("name")), given, allow_input_required=True)
            if isinstance(prompt, InputRequiredResult):
                return None
            for message in prompt.messages:
                blocks += [TextContent(text=f"{message.role}:"), message.content]
    return CallToolResult(content=blocks)


def _prompt_signature(prompt: Prompt) -> str:
    arguments = (f"{argument.name}{'' if argument.required else '?'}" for argument in prompt.arguments or ())
    return f"{prompt.name}({', '.join(arguments)})"


def _line(*parts: str | None) -> str:
    return " | ".join(filter(None, parts))


def _page(lines: Iterable[str], cursor: str | None) -> CallToolResult:
    more = [f"There are more. Call again with cursor {cursor}"] if cursor else []
    return CallToolResult(content=[TextContent(text="\n".join([*lines, *more]))])
