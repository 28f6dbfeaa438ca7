"""A line of a server as a message: an answer that cannot be read is an error, or whoever asked would wait for it."""

import asyncio
import codecs
import json
import re
from typing import Any

from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from orga.activities.adapters.mcp.budget import MAX_PARTS, QUICK_BYTES, SentTooMuch
from orga.workflows.types.json_text import has_more_parts
from orga.workflows.types.text import clean_json

MAX_MENDED_BYTES = 1_000_000

_ANSWER = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]{1,18}|"[\w.-]{1,100}")\s*,'
    rb'(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"(?:result|error)"'
)
"""The beginning of an answer, by which its request is known though the rest is no JSON."""

_UNREADABLE = ErrorData(code=PARSE_ERROR, message="its answer cannot be read")


async def read_message(line: bytes) -> tuple[JSONRPCMessage | None, bytes]:
    """Return what `readable` does, while the worker goes on.

    Raises:
        RecursionError: It is nested too deep.
        SentTooMuch: It has too many parts.
    """
    if has_more_parts(line, MAX_PARTS):
        raise SentTooMuch(f"it sent a message of more than {MAX_PARTS:,} parts")
    return await asyncio.to_thread(readable, line) if len(line) > QUICK_BYTES else readable(line)


def is_answer(message: JSONRPCMessage | None) -> bool:
    """Return whether it answers a request of ours."""
    return isinstance(message, (JSONRPCResponse, JSONRPCError))


def readable(line: bytes) -> tuple[JSONRPCMessage | None, bytes]:
    """Return the message and the line as the SDK can read it; None for a line that is no message, as a banner.

    Raises:
        RecursionError: It is nested so deep that nobody can say which request it answers.
    """
    line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False), line
    except ValidationError:
        message = _mended(line) if line.lstrip().startswith(b"{") else None
    return message, line if message is None else message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _mended(line: bytes) -> JSONRPCMessage | None:
    """Return a message of which bytes or halves of characters are replaced that the reader refuses; or an error."""
    try:
        given: Any = json.loads(line.decode(errors="replace"), strict=False)
    except ValueError:
        return _error_for(json.loads(found[1])) if (found := _ANSWER.match(line)) else None
    if len(line) <= MAX_MENDED_BYTES:
        try:
            return jsonrpc_message_adapter.validate_json(json.dumps(clean_json(given)), by_name=False)
        except ValidationError:
            pass
    is_answer = "result" in given or "error" in given
    return _error_for(given.get("id")) if is_answer else None


def _error_for(request: Any) -> JSONRPCError | None:
    """Return what stands for an answer that cannot be read, by its id."""
    if isinstance(request, bool) or not isinstance(request, (int, str)):
        return None
    return JSONRPCError(jsonrpc="2.0", id=request, error=_UNREADABLE)
