"""Results of servers that do not keep to the protocol: a faulty tool or block costs nothing but itself.

The SDK refuses a list of tools for one of them, and a result for one of its blocks. So what it would refuse is mended
or left out before it looks.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeGuard, cast

from mcp import ClientSession
from mcp.shared.dispatcher import Dispatcher
from mcp_types import CallToolResult, ListToolsResult
from mcp_types import methods as protocol
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError
from pydantic_core import to_json

from orga.activities.adapters.mcp.content import MAX_BLOCKS
from orga.activities.adapters.mcp.plain_text import plain

LEFT_OUT = "orga/left-out"
"""Key of a list's `_meta`: the tools that the SDK would have refused, by name, each with the reason."""

MAX_TOOLS = 1_000
MAX_NAME_BYTES = 200
MAX_REASON_BYTES = 300

_MODELS = {"tools/list": ListToolsResult, "tools/call": CallToolResult}

Json = dict[str, Any]


def make_lenient(session: ClientSession) -> None:
    """Have a session read what it would refuse. It takes no dispatcher from the client that makes it."""
    session._dispatcher = cast("Dispatcher[Any]", _LenientDispatcher(session, session._dispatcher))  # pyright: ignore


class _LenientDispatcher:
    """A session's dispatcher, with results as the session can read them."""

    def __init__(self, session: ClientSession, inner: Dispatcher[Any]) -> None:
        self._session, self._inner = session, inner

    def __getattr__(self, name: str) -> Any:
        """Leave everything else to the dispatcher."""
        return getattr(self._inner, name)

    async def send_raw_request(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> Json:
        """Send a request and return its result."""
        result = await self._inner.send_raw_request(method, params, opts)
        if method not in _MODELS:
            return result
        version = self._session.protocol_version or LATEST_HANDSHAKE_VERSION
        return await asyncio.to_thread(mended, method, version, result)


def mended(method: str, version: str, result: Json) -> Json:
    """Return a result as the protocol wants it, as far as it can be; what has no fault stays as it is."""
    if method == "tools/list":
        return _with_usable_tools(version, result)
    return result if _problem(method, version, result) is None else _with_usable_blocks(version, result)


def left_out_of(listed: ListToolsResult) -> dict[str, str]:
    """Return the tools that are missing from a list because of their faults."""
    return cast("dict[str, str]", (listed.meta or {})[LEFT_OUT]) if LEFT_OUT in (listed.meta or {}) else {}


def _problem(method: str, version: str, result: Json) -> tuple[tuple[int | str, ...], str] | None:
    """Return the first place that the SDK refuses, and why; None if it takes the result."""
    try:
        protocol.validate_server_result(method, version, result)
        _MODELS[method].model_validate(result, by_name=False)
    except KeyError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return first["loc"], first["msg"]
    return None


def _with_usable_tools(version: str, result: Json) -> Json:
    listed = result.get("tools", ())
    tools: list[Any] = listed if _is_list(listed) else []
    given = result.get("_meta")
    meta: Json = given if _is_object(given) else {}
    result = result | {"tools": tools if listed is None else listed, "_meta": meta | {LEFT_OUT: {}}}
    if all(map(_has_schema, tools)) and _problem("tools/list", version, result) is None:
        return result
    kept: list[Json] = []
    left_out: dict[str, str] = {}
    for tool in tools[:MAX_TOOLS]:
        found = _usable_tool(version, result, tool)
        if isinstance(found, str):
            name = tool.get("name") if _is_object(tool) else None
            left_out[plain(str(name or "a tool without a name"), MAX_NAME_BYTES)] = found
        else:
            kept.append(found)
    return result | {"tools": kept, "_meta": meta | {LEFT_OUT: left_out}}


def _usable_tool(version: str, listed: Json, tool: Any) -> Json | str:
    """Return a tool without those of its optional fields that nobody can read, or why it cannot be offered."""
    if not _is_object(tool):
        return "its definition is no object"
    tool = tool | {"inputSchema": _schema(tool.get("inputSchema"))}
    for _ in range(len(tool)):
        problem = _problem("tools/list", version, listed | {"tools": [tool]})
        if problem is None:
            return tool
        place, why = problem
        field = str(place[2]) if len(place) > 2 else ""
        if place[:2] != ("tools", 0) or field in ("", "name", "inputSchema") or field not in tool:
            break
        tool = {name: value for name, value in tool.items() if name != field}
    else:
        return "its definition cannot be read"
    return plain(f"its definition breaks the protocol: {'.'.join(map(str, place[2:]))}: {why}", MAX_REASON_BYTES)


def _has_schema(tool: Any) -> bool:
    return _is_object(tool) and _schema(tool.get("inputSchema")) == tool.get("inputSchema")


def _schema(given: Any) -> Any:
    """Return the schema of arguments of which a server says nothing, or `null`, as servers in Go do."""
    if given is None:
        return {"type": "object"}
    if not _is_object(given):
        return given
    known = {key: value for key, value in given.items() if value is not None or key not in ("properties", "required")}
    return known if known.get("type") is not None else {**known, "type": "object"}


def _with_usable_blocks(version: str, result: Json) -> Json:
    content = result.get("content")
    blocks: list[Any] = content if _is_list(content) else [content] if content and not isinstance(content, int) else []
    if not blocks and result.get("structuredContent") is None:
        return result
    empty: Json = {key: value for key, value in result.items() if key not in ("structuredContent", "isError", "_meta")}
    failed = result.get("isError") not in (None, False, 0, "", "false")
    fixed: Json = {**empty, "isError": failed, "content": []}
    shown = [_block(version, fixed, block) for block in blocks[:MAX_BLOCKS]]
    fixed["content"] = shown + [_text("")] * (len(blocks) - len(shown))
    if (structured := result.get("structuredContent")) is not None:
        taken: Json = fixed | {"structuredContent": structured}
        is_taken = _problem("tools/call", version, taken) is None
        fixed = taken if is_taken else fixed | {"structuredContent": {"result": structured}}
    return fixed if _problem("tools/call", version, fixed) is None else result


def _block(version: str, result: Json, block: Any) -> Json:
    """Return a block, or its text, or what stands for one that nobody knows."""
    if _is_object(block) and _problem("tools/call", version, result | {"content": [block]}) is None:
        return block
    if not _is_object(block):
        return _text(block if isinstance(block, str) else to_json(block).decode())
    inner = block.get("resource")
    texts = [block.get("text"), inner.get("text") if _is_object(inner) else None]
    kind = plain(str(block.get("type") or "unnamed"), MAX_NAME_BYTES)
    named = f"[a block of type {kind}; it cannot be shown here]"
    return _text(next((each for each in texts if isinstance(each, str)), named))


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _is_object(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
