"""The text of an activity's failure, without Temporal's wrapping."""

from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

from orga.workflows.types.tool_calls.breakers import CIRCUIT_OPEN

MAX_FAILURE_CHARS = 2_000

_TIMEOUTS = {
    TimeoutType.START_TO_CLOSE: "it took longer than its time limit",
    TimeoutType.HEARTBEAT: "its worker went silent",
    TimeoutType.SCHEDULE_TO_START: "no worker took it in time (is one polling its task queue?)",
    TimeoutType.SCHEDULE_TO_CLOSE: "no attempt succeeded within the time that was left",
}


def failure_text(error: BaseException) -> str:
    """Return one line: the kind and the message of the innermost failure with a text."""
    cause = root_cause(error)
    if isinstance(cause, TimeoutError):
        text = _TIMEOUTS.get(cause.type or TimeoutType.START_TO_CLOSE, "it timed out")
        earlier_failure = cause.cause if cause.last_heartbeat_details else None
        return f"{text} ({earlier_failure})" if earlier_failure else text
    if isinstance(cause, ApplicationError):
        if cause.type == CIRCUIT_OPEN:
            return cause.message
        kind = f"{cause.type}: " if cause.type else ""
        return f"{kind}{cause.message}"[:MAX_FAILURE_CHARS]
    return f"{type(cause).__name__}: {cause}"[:MAX_FAILURE_CHARS]


def failure_kind(error: BaseException) -> str | None:
    """Return the type of the failure. It is `Timeout` if an attempt took too long."""
    cause = root_cause(error)
    return cause.type if isinstance(cause, ApplicationError) else type(cause).__name__.replace("Error", "")


def failure_message(error: BaseException) -> str:
    cause = root_cause(error)
    return cause.message if isinstance(cause, ApplicationError) else failure_text(error)


def root_cause(error: BaseException) -> BaseException:
    if isinstance(error, ActivityError) and error.cause is not None:
        return error.cause
    return error
