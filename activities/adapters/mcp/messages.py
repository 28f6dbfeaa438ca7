"""A line of a server as a message: an answer that cannot be read is an error, or whoever asked would wait for it."""

import asyncio
import json
from typing import Any, cast

from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from orga.activities.adapters.mcp.budget import MAX_PARTS, QUICK_BYTES, SentTooMuch
from orga.workflows.types.json_text import has_more_parts
from orga.workflows.types.text import clean_json

MAX_MENDED_BYTES = 1_000_000

_UNREADABLE = ErrorData(code=PARSE_ERROR, message="its answer cannot be read")


async def read_message(line: bytes) -> JSONRPCMessage | None:
    """Return the message as `message_of` does, while the worker goes on.

    Raises:
        RecursionError: It is nested too deep.
        SentTooMuch: It has too many parts.
    """
    if has_more_parts(line, MAX_PARTS):
        raise SentTooMuch(f"it sent a message of more than {MAX_PARTS:,} parts")
    return await asyncio.to_thread(message_of, line) if len(line) > QUICK_BYTES else message_of(line)


def is_answer(message: JSONRPCMessage | None) -> bool:
    """Return whether it answers a request of ours."""
    return isinstance(message, (JSONRPCResponse, JSONRPCError))


def message_of(line: bytes) -> JSONRPCMessage | None:
    """Return the message; None for a line that is none, as a banner.

    Raises:
        RecursionError: It is nested so deep that nobody can say which request it answers.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _mended(line) if line.lstrip().startswith(b"{") else None


def _mended(line: bytes) -> JSONRPCMessage | None:
    """Return a message with halves of characters replaced, which JSON may hold and the reader refuses; or an error."""
    try:
        given: Any = json.loads(line)
    except ValueError:
        return None
    if len(line) <= MAX_MENDED_BYTES:
        try:
            return jsonrpc_message_adapter.validate_json(json.dumps(clean_json(given)), by_name=False)
        except ValidationError:
            pass
    return _error_for(cast("dict[str, Any]", given))


def _error_for(given: dict[str, Any]) -> JSONRPCError | None:
    is_answer = "result" in given or "error" in given
    ident: Any = given.get("id")
    if not is_answer or not isinstance(ident, (int, str)):
        return None
    return JSONRPCError(jsonrpc="2.0", id=ident, error=_UNREADABLE)
