"""What a server's errors mean: it is lost for the moment, or lacks what others have, as Temporal's test server does."""

from temporalio.service import RPCError, RPCStatusCode

_DISK_FULL = ("database or disk is full", "no space left on device", "disk quota exceeded")
"""What SQLite and the databases of other servers say, amid their statements."""


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
    """Return whether the server is lost for the moment, or the way to it: the same request may succeed later."""
    return error.status in _LOST_STATUSES


def is_unsupported(error: RPCError) -> bool:
    """Return whether the server knows no such request at all, whoever makes it."""
    return error.status is RPCStatusCode.UNIMPLEMENTED


def error_reason(error: RPCError) -> str:
    """Return why the server did not do as it was asked, in one line."""
    if is_unsupported(error):
        return f"{_request_name(error)}, which this server does not do; Temporal's test server is one of these"
    if any(sign in error.message.lower() for sign in _DISK_FULL):
        return "the disk of its database is full; make room, and what runs goes on by itself"
    return error.message


def _request_name(error: RPCError) -> str:
    """Return the name of the request, which stands in the message of every server as `package.Service/Name`."""
    return next((word.rpartition("/")[2] for word in error.message.split() if "/" in word), error.message)
