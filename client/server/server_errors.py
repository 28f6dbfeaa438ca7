"""The meaning of a server's errors: it is lost for the moment, or lacks a feature, like Temporal's test server."""

from temporalio.service import RPCError, RPCStatusCode

_DISK_FULL = ("database or disk is full", "no space left on device", "disk quota exceeded")
"""Parts of the messages of SQLite and other databases."""


_LOST_STATUSES = {
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.ABORTED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNKNOWN,
}


def is_lost(error: RPCError) -> bool:
    """Return whether the server cannot be reached at the moment, so that the same request may succeed later."""
    return error.status in _LOST_STATUSES


def is_unsupported(error: RPCError) -> bool:
    """Return whether the server does not support the request."""
    return error.status is RPCStatusCode.UNIMPLEMENTED


def error_reason(error: RPCError) -> str:
    """Return why the server refused the request, in one line."""
    if is_unsupported(error):
        return f"{_request_name(error)}, which this server does not support, like Temporal's test server"
    if any(sign in error.message.lower() for sign in _DISK_FULL):
        return "the disk of its database is full; make room, and runs continue by themselves"
    return error.message


def _request_name(error: RPCError) -> str:
    """Return the name of the request, which is part of every server's message as `package.Service/Name`."""
    return next((word.rpartition("/")[2] for word in error.message.split() if "/" in word), error.message)
