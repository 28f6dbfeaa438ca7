"""A line of a server as a message: an answer that cannot be read is an error, or whoever asked would wait for it."""

import json
from typing import Any, cast

from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from workflows.types.text import clean_json

MAX_MENDED_BYTES = 1_000_000

_UNREADABLE = ErrorData(code=PARSE_ERROR, message="its answer cannot be read")


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
