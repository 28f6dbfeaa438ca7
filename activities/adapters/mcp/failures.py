"""Failures of MCP calls: which are the call's own fault, which the server's, after which the effect is unknown."""

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from activities.adapters.mcp.plain_text import plain
from activities.ports import ToolError
from workflows.types.tools import PROCESS_CRASHED

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


def unavailable(server: str, why: str) -> ToolError:
    """Return the failure of a call that was not made."""
    text = f"the MCP server {server!r} is unavailable ({why}); use another tool, or go on without it"
    return ToolError(text, kind=UNAVAILABLE, retryable=True)


def changed(tool: str) -> ToolError:
    """Return the failure of a call whose tool has another definition now."""
    text = f"the definition of {tool} changed since this run began: start a new run or `orga rewind`"
    return ToolError(text, kind=CHANGED)


def gone(tool: str, why: str) -> ToolError:
    """Return the failure of a call whose tool is not there any more."""
    return ToolError(f"{tool} cannot be called: {why}", kind=CHANGED)


def reported(text: str) -> ToolError:
    """Return the failure that a server reports as a tool's result."""
    return ToolError(text, kind=REPORTED)


def bad_result(server: str, why: str) -> ToolError:
    """Return the failure of a call that was answered with what is no result."""
    return ToolError(f"the MCP server {server!r} {why}", kind=BAD_RESULT)


def protocol_failure(server: str, error: MCPError) -> ToolError:
    """Return the failure that an error of the protocol means."""
    said = plain(error.message, MAX_ERROR_BYTES)
    if error.code == CONNECTION_CLOSED:
        text = f"the connection to the MCP server {server!r} broke during the call ({said})"
        return ToolError(text, kind=PROCESS_CRASHED, retryable=True)
    text = f"the MCP server {server!r} refused the call: {said}"
    if error.code in _FINAL_CODES:
        return ToolError(text, kind=REFUSED)
    return ToolError(text, kind=SERVER_FAILED, retryable=error.code == INTERNAL_ERROR)
