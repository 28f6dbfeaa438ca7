"""Failures of MCP calls: errors of the call, errors of the server, and failures with an unknown effect."""

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from orga.activities.adapters.mcp.content import plain_line
from orga.activities.ports import ToolError
from orga.workflows.types.tool_calls.tools import PROCESS_CRASHED

UNAVAILABLE = "McpUnavailable"
"""Kind of the error if the server cannot be reached. The call never left the worker."""

CHANGED = "McpToolChanged"
"""Kind of the error if the tool is not the one that was offered to the run."""

REPORTED = "McpToolError"
"""Kind of the error if the server reports that the call failed."""

REFUSED = "McpRequestRefused"
SERVER_FAILED = "McpServerError"
BAD_RESULT = "McpBadResult"

MAX_ERROR_BYTES = 2_000
_FINAL_CODES = frozenset({INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND})
_REFUSING_CODES = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND})
"""Codes which show that the server did not begin the call. INVALID_REQUEST is missing, because the SDK also uses it for
a redirect, a 202, and an answer that is neither JSON nor an event stream.
"""


def unavailable_error(server: str, why: str) -> ToolError:
    text = f"the MCP server {server!r} is unavailable ({why}); use another tool, or go on without it"
    return ToolError(text, kind=UNAVAILABLE, retryable=True, acted="no")


def changed_tool_error(tool: str) -> ToolError:
    text = f"the definition of {tool} changed since this run began: start a new run or `orga rewind`"
    return ToolError(text, kind=CHANGED)


def missing_tool_error(tool: str, why: str) -> ToolError:
    return ToolError(f"{tool} cannot be called: {why}", kind=CHANGED)


def reported_error(text: str) -> ToolError:
    return ToolError(text, kind=REPORTED, acted="maybe")


def bad_result_error(server: str, why: str) -> ToolError:
    return ToolError(f"the MCP server {server!r} {why}", kind=BAD_RESULT, acted="maybe")


def protocol_error(server: str, error: MCPError, why: str, *, is_refusal: bool = False) -> ToolError:
    """Return the failure for an error of the protocol.

    Args:
        is_refusal: The HTTP status shows that nothing was done.
    """
    cause = plain_line(why, MAX_ERROR_BYTES)
    if error.code == CONNECTION_CLOSED:
        text = f"the connection to the MCP server {server!r} broke during the call ({cause})"
        return ToolError(text, kind=PROCESS_CRASHED, retryable=True, acted="maybe")
    text = f"the MCP server {server!r} refused the call: {cause}"
    acted = "no" if is_refusal or error.code in _REFUSING_CODES else "maybe"
    if error.code in _FINAL_CODES:
        return ToolError(text, kind=REFUSED, acted=acted)
    return ToolError(text, kind=SERVER_FAILED, retryable=error.code == INTERNAL_ERROR, acted=acted)
