"""Failures of MCP calls: which are the call's own fault, which the server's, after which the effect is unknown."""

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from orga.activities.adapters.mcp.plain_text import plain_line
from orga.activities.ports import ToolError
from orga.workflows.types.tool_calls.tools import PROCESS_CRASHED

UNAVAILABLE = "McpUnavailable"
"""Type of the failure of a call that never left the worker: its server cannot be reached."""

CHANGED = "McpToolChanged"
"""Type of the failure of a call whose tool is not what the run was offered."""

REPORTED = "McpToolError"
"""Type of the failure of a call that the server says has failed."""

REFUSED = "McpRequestRefused"
SERVER_FAILED = "McpServerError"
BAD_RESULT = "McpBadResult"

MAX_ERROR_BYTES = 2_000
_FINAL_CODES = frozenset({INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND})
_REFUSING_CODES = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND})
"""Of a server that has not begun the call. Not INVALID_REQUEST: the SDK says so, too, of a redirect, a 202, an answer
that is neither JSON nor a stream of events."""


def unavailable_error(server: str, why: str) -> ToolError:
    """Return the failure of a call that was not made."""
    text = f"the MCP server {server!r} is unavailable ({why}); use another tool, or go on without it"
    return ToolError(text, kind=UNAVAILABLE, retryable=True, acted="no")


def changed_tool_error(tool: str) -> ToolError:
    """Return the failure of a call whose tool has another definition now."""
    text = f"the definition of {tool} changed since this run began: start a new run or `orga rewind`"
    return ToolError(text, kind=CHANGED)


def missing_tool_error(tool: str, why: str) -> ToolError:
    """Return the failure of a call whose tool is not there any more."""
    return ToolError(f"{tool} cannot be called: {why}", kind=CHANGED)


def reported_error(text: str) -> ToolError:
    """Return the failure that a server reports as a tool's result."""
    return ToolError(text, kind=REPORTED, acted="maybe")


def bad_result_error(server: str, why: str) -> ToolError:
    """Return the failure of a call that was answered with what is no result."""
    return ToolError(f"the MCP server {server!r} {why}", kind=BAD_RESULT, acted="maybe")


def protocol_error(server: str, error: MCPError, why: str, *, is_refusal: bool = False) -> ToolError:
    """Return the failure that an error of the protocol means.

    Args:
        server: Its name.
        error: Of the call.
        why: What is said of it.
        is_refusal: It came with a status that says so.
    """
    said = plain_line(why, MAX_ERROR_BYTES)
    if error.code == CONNECTION_CLOSED:
        text = f"the connection to the MCP server {server!r} broke during the call ({said})"
        return ToolError(text, kind=PROCESS_CRASHED, retryable=True, acted="maybe")
    text = f"the MCP server {server!r} refused the call: {said}"
    acted = "no" if is_refusal or error.code in _REFUSING_CODES else "maybe"
    if error.code in _FINAL_CODES:
        return ToolError(text, kind=REFUSED, acted=acted)
    return ToolError(text, kind=SERVER_FAILED, retryable=error.code == INTERNAL_ERROR, acted=acted)
