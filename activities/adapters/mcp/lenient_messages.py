"""Limits how much an MCP server sends, and repairs results that break the protocol.

The SDK refuses a whole list of tools because of one tool, and a whole result because of one block. So invalid parts are
repaired or left out before the SDK reads them.
"""

import asyncio
import codecs
import json
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from mcp import ClientSession
from mcp.shared.dispatcher import Dispatcher
from mcp_types import (
    PARSE_ERROR,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    ListToolsResult,
    jsonrpc_message_adapter,
)
from mcp_types import methods as protocol
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError
from pydantic_core import to_json

from orga.activities.adapters.mcp.content import MAX_BLOCKS, plain_line
from orga.workflows.types.json_text import as_object, has_more_parts, is_list, is_object
from orga.workflows.types.text import clean_json

ANSWER_BYTES = 17_000_000
"""Bytes that a server may send for one request of ours: the largest message, and progress notes before it."""

UNSOLICITED_BYTES = 2_000_000
"""Bytes of notifications and requests that a server may send at once."""

UNSOLICITED_OVERHEAD_BYTES = 1_000
"""A smaller unsolicited message counts as this many bytes, because each takes a fraction of a millisecond."""

UNSOLICITED_BYTES_PER_S = 50_000
"""A used budget grows by this many bytes each second, until it is UNSOLICITED_BYTES again."""

MAX_BUDGET_BYTES = 2 * ANSWER_BYTES
"""The largest budget. Without it, the unspent bytes of many small answers would add up without limit."""

SMALL_MESSAGE_BYTES = 100_000
"""Bytes. A larger message is parsed in a thread."""

MAX_PARTS = 100_000
"""Strings, or lists, objects and commas, of a message. Parsing more of them would block the whole worker."""


class ByteBudgetExceeded(Exception):
    """A server sent more than we asked for."""


class ByteBudget:
    """The bytes that a server may still send."""

    def __init__(self) -> None:
        self._left = float(UNSOLICITED_BYTES)
        self._spent_at = time.monotonic()

    def grant(self) -> None:
        """Add the bytes for one request of ours."""
        self._left = min(self._left + ANSWER_BYTES, MAX_BUDGET_BYTES)

    def spend(self, size: int) -> None:
        """Subtract received bytes. Raise ByteBudgetExceeded if the server sent too much."""
        now = time.monotonic()
        if self._left < UNSOLICITED_BYTES:
            self._left = min(self._left + (now - self._spent_at) * UNSOLICITED_BYTES_PER_S, UNSOLICITED_BYTES)
        self._spent_at = now
        self._left -= size
        if self._left < 0:
            raise ByteBudgetExceeded("it sends far more than it is asked for")

    def spend_unsolicited(self, size: int) -> None:
        """Subtract an unsolicited message from a budget that is only for such messages. Raise like `spend`."""
        self.spend(max(size, UNSOLICITED_OVERHEAD_BYTES))


OMITTED_META = "orga/left-out"
"""Key in the `_meta` of a list of tools. Its value has the reason for each tool that was left out, by name."""

MAX_TOOLS = 1_000
"""Tools of a list that are read, on all its pages together."""
MAX_NAME_BYTES = 200
MAX_REASON_BYTES = 300

_RESULT_MODELS = {"tools/list": ListToolsResult, "tools/call": CallToolResult}

Json = dict[str, Any]


def make_lenient(session: ClientSession) -> None:
    """Make a session lenient, by replacing its private dispatcher. `mcp.Client` offers no other way."""
    session._dispatcher = cast("Dispatcher[Any]", _LenientDispatcher(session, session._dispatcher))  # pyright: ignore


class _LenientDispatcher:
    """Passes everything on to a session's dispatcher, and repairs the results that come back."""

    def __init__(self, session: ClientSession, inner: Dispatcher[Any]) -> None:
        self._session, self._inner = session, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send_raw_request(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> Json:
        result = await self._inner.send_raw_request(method, params, opts)
        if method not in _RESULT_MODELS:
            return result
        version = self._session.protocol_version or LATEST_HANDSHAKE_VERSION
        return await asyncio.to_thread(repaired_result, method, version, result)


def repaired_result(method: str, version: str, result: Json) -> Json:
    """Return the result with invalid parts repaired or left out, if possible. A list of tools gets `OMITTED_META`."""
    if method == "tools/list":
        return _with_usable_tools(version, result)
    return _with_usable_blocks(version, result) if _first_refused_value(method, version, result) else result


def omitted_tools(listed: ListToolsResult) -> dict[str, str]:
    """Return the reason for each tool that `repaired_result` left out of a list, by name."""
    return as_object((listed.meta or {}).get(OMITTED_META))


class _RefusedValue(NamedTuple):
    location: tuple[int | str, ...]
    why: str


def _first_refused_value(method: str, version: str, result: Json) -> _RefusedValue | None:
    """Return the first value that the SDK refuses, or None if it accepts the whole result."""
    try:
        protocol.validate_server_result(method, version, result)
        _RESULT_MODELS[method].model_validate(result, by_name=False)
    except KeyError:
        return None  # the SDK has no schema for this method and version
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return _RefusedValue(first["loc"], first["msg"])
    return None


def _with_usable_tools(version: str, result: Json) -> Json:
    listed = result.get("tools")
    tools = [_with_arguments_schema(tool) for tool in listed[:MAX_TOOLS]] if is_list(listed) else []
    meta = as_object(result.get("_meta"))
    result = result | {"tools": tools, "_meta": meta | {OMITTED_META: {}}}
    if _first_refused_value("tools/list", version, result) is None:
        return result
    kept: list[Json] = []
    left_out: dict[str, str] = {}
    for tool in tools:
        usable = _usable_tool(version, result, tool)
        if isinstance(usable, str):
            name = tool.get("name") if is_object(tool) else None
            left_out[plain_line(str(name or "a tool without a name"), MAX_NAME_BYTES)] = usable
        else:
            kept.append(usable)
    return result | {"tools": kept, "_meta": meta | {OMITTED_META: left_out}}


def _usable_tool(version: str, listed: Json, tool: Any) -> Json | str:
    """Return the tool without its unreadable optional fields, or the reason why it cannot be offered."""
    if not is_object(tool):
        return "its definition is no object"
    for _ in range(len(tool)):
        refused = _first_refused_value("tools/list", version, listed | {"tools": [tool]})
        if refused is None:
            return tool
        location = refused.location
        field = str(location[2]) if location[:2] == ("tools", 0) and len(location) > 2 else ""
        is_optional = field not in ("name", "inputSchema")
        if not (is_optional and field in tool):
            why = f"its definition breaks the protocol: {'.'.join(map(str, location[2:]))}: {refused.why}"
            return plain_line(why, MAX_REASON_BYTES)
        tool = {name: value for name, value in tool.items() if name != field}
    return "its definition cannot be read"


def _with_arguments_schema(tool: Any) -> Any:
    return tool | {"inputSchema": _arguments_schema(tool.get("inputSchema"))} if is_object(tool) else tool


def _arguments_schema(schema: Any) -> Any:
    """Return the schema with missing parts added. Servers in Go send `null` for an empty schema or list."""
    if schema is None:
        return {"type": "object"}
    if not is_object(schema):
        return schema
    known = {key: value for key, value in schema.items() if value is not None or key not in ("properties", "required")}
    return known if known.get("type") is not None else {**known, "type": "object"}


def _with_usable_blocks(version: str, result: Json) -> Json:
    blocks = _content_blocks(result.get("content"))
    structured = result.get("structuredContent")
    if not blocks and structured is None:
        return result
    others: Json = {key: value for key, value in result.items() if key not in ("structuredContent", "isError", "_meta")}
    is_error = result.get("isError") not in (None, False, 0, "", "false")
    fixed: Json = {**others, "isError": is_error, "content": []}
    usable = [_usable_block(version, fixed, block) for block in blocks[:MAX_BLOCKS]]
    # the blocks after these are not shown, but a note has their number, so empty ones stay for them
    fixed["content"] = usable + [_text_block("")] * (len(blocks) - len(usable))
    if structured is not None:
        unchanged: Json = fixed | {"structuredContent": structured}
        is_valid = _first_refused_value("tools/call", version, unchanged) is None
        fixed = unchanged if is_valid else fixed | {"structuredContent": {"result": structured}}
    return fixed if _first_refused_value("tools/call", version, fixed) is None else result


def _content_blocks(content: Any) -> list[Any]:
    if is_list(content):
        return content
    return [content] if content and not isinstance(content, int) else []


def _usable_block(version: str, result: Json, block: Any) -> Json:
    """Return a valid block unchanged. Return an invalid one as a block with its text, or with a note about its type."""
    if is_object(block) and _first_refused_value("tools/call", version, result | {"content": [block]}) is None:
        return block
    if not is_object(block):
        return _text_block(block if isinstance(block, str) else to_json(block).decode())
    inner = block.get("resource")
    texts = [block.get("text"), inner.get("text") if is_object(inner) else None]
    kind = plain_line(str(block.get("type") or "unnamed"), MAX_NAME_BYTES)
    note = f"[a block of type {kind}; it cannot be shown here]"
    return _text_block(next((text for text in texts if isinstance(text, str)), note))


def _text_block(text: str) -> Json:
    return {"type": "text", "text": text}


MAX_REPAIRED_BYTES = 1_000_000

_ANSWER_START = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]{1,18}|"[\w.-]{1,100}")\s*,'
    rb'(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"(?:result|error)"'
)
"""The beginning of an answer. Its id identifies the request even if the rest is not JSON."""

_UNREADABLE = ErrorData(code=PARSE_ERROR, message="its answer cannot be read")


async def read_message(line: bytes) -> tuple[JSONRPCMessage | None, bytes]:
    """Return the result of `parse_message` without blocking the worker. Raise ByteBudgetExceeded for too many parts."""
    if has_more_parts(line, MAX_PARTS):
        raise ByteBudgetExceeded(f"it sent a message of more than {MAX_PARTS:,} parts")
    return await asyncio.to_thread(parse_message, line) if len(line) > SMALL_MESSAGE_BYTES else parse_message(line)


def is_answer(message: JSONRPCMessage | None) -> bool:
    return isinstance(message, (JSONRPCResponse, JSONRPCError))


def parse_message(line: bytes) -> tuple[JSONRPCMessage | None, bytes]:
    """Return the message (None if the line is not one), and the line in a form that the SDK can read.

    Raise RecursionError if the line is nested too deep to be parsed. The request that it answers is then unknown.
    """
    line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False), line
    except ValidationError:
        message = _repaired_message(line) if line.lstrip().startswith(b"{") else None
    if message is None:
        return None, line
    return message, message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _repaired_message(line: bytes) -> JSONRPCMessage | None:
    """Return the message with invalid bytes and lone surrogates replaced, else an error for its request, else None."""
    try:
        given: Any = json.loads(line.decode(errors="replace"), strict=False)
    except ValueError:
        start = _ANSWER_START.match(line)
        return _unreadable_answer(json.loads(start[1])) if start else None
    if len(line) <= MAX_REPAIRED_BYTES:
        try:
            return jsonrpc_message_adapter.validate_json(json.dumps(clean_json(given)), by_name=False)
        except ValidationError:
            pass
    return _unreadable_answer(given.get("id")) if "result" in given or "error" in given else None


def _unreadable_answer(request: Any) -> JSONRPCError | None:
    """Return the error for an unreadable answer, or None if its id is invalid."""
    if isinstance(request, bool) or not isinstance(request, (int, str)):
        return None
    return JSONRPCError(jsonrpc="2.0", id=request, error=_UNREADABLE)
