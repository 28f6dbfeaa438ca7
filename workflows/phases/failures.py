"""Conclusions from an activity's failure: about the run's time, the tool's health, and the call's effect."""

from collections.abc import Collection

from pydantic import ValidationError
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TimeoutError, TimeoutType

from orga.workflows.phases.control.failure_text import root_cause
from orga.workflows.types.limits import OUT_OF_TIME
from orga.workflows.types.questions import INPUT_REQUIRED, AskedInputs
from orga.workflows.types.tool_calls.breakers import CIRCUIT_OPEN
from orga.workflows.types.tool_calls.gate import NOT_PERMITTED
from orga.workflows.types.tool_calls.tools import (
    DONE,
    EARLIER_UNKNOWN,
    GOES_ON,
    MAYBE_DONE,
    NOT_DONE,
    OUTSIDE_STOPS,
    UNKNOWN_OUTCOMES,
    Effect,
)


def _application_type(error: BaseException) -> str | None:
    """Return the type that an activity gave its failure, or None for any other failure, such as a time-out."""
    cause = root_cause(error)
    return cause.type if isinstance(cause, ApplicationError) else None


def _has_detail(error: BaseException, detail: str) -> bool:
    cause = root_cause(error)
    return isinstance(cause, ApplicationError) and detail in cause.details


def is_out_of_time(error: BaseException) -> bool:
    """Return True if the attempts used up their time, or the next one would come too late."""
    if isinstance(error, ActivityError) and error.retry_state == RetryState.TIMEOUT:
        return True
    cause = root_cause(error)
    is_server_limit = isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_CLOSE
    return is_server_limit or _has_detail(error, OUT_OF_TIME)


def is_invalid_input(error: BaseException) -> bool:
    return _application_type(error) == "InvalidInput"


def is_infrastructure_failure(error: BaseException, non_retryable_types: Collection[str] = ()) -> bool:
    """Return True if the failure counts against the tool's health: a time-out, or a failure that a retry might cure.

    `non_retryable_types` are those of the tool's options.
    """
    cause = root_cause(error)
    if isinstance(cause, ApplicationError):
        might_be_cured = not cause.non_retryable or OUT_OF_TIME in cause.details
        return might_be_cured and cause.type not in {*OUTSIDE_STOPS, *non_retryable_types}
    return isinstance(cause, TimeoutError)


def is_turned_away_by_worker(error: BaseException) -> bool:
    """Return True if a worker rejected the call before it started: by an open circuit, or without a permit."""
    return _application_type(error) in {CIRCUIT_OPEN, NOT_PERMITTED}


def is_context_overflow(error: BaseException) -> bool:
    """Return True if the provider refused a model call because its context is too long."""
    return _application_type(error) == "ContextOverflow"


def is_refused_content(error: BaseException) -> bool:
    """Return True if a content filter of the provider refused the input of a model call."""
    return _application_type(error) == "ContentRefused"


def asked_inputs(error: BaseException) -> AskedInputs | None:
    """Return the inputs that a tool's server asked for, or None if the call failed for another reason."""
    cause = root_cause(error)
    if not isinstance(cause, ApplicationError) or cause.type != INPUT_REQUIRED:
        return None
    try:
        return AskedInputs.model_validate(cause.details[-1] if cause.details else None)
    except ValidationError:
        return None


def may_have_acted(error: BaseException, effect: Effect) -> bool:
    """Return True if the call may have had its effect although it failed.

    An irreversible call is assumed to have acted unless its failure says that nothing was done: uncertainty must not be
    reported as certainty. For other calls the failure decides.
    """
    cause = root_cause(error)
    if effect == "read_only":
        return False
    if isinstance(cause, TimeoutError):
        return cause.type != TimeoutType.SCHEDULE_TO_START
    if not isinstance(cause, ApplicationError):
        return effect == "irreversible"
    some_attempt_may_have_acted = any(detail in cause.details for detail in (EARLIER_UNKNOWN, MAYBE_DONE, DONE))
    if cause.type in UNKNOWN_OUTCOMES or some_attempt_may_have_acted:
        return True
    return effect == "irreversible" and NOT_DONE not in cause.details


def had_effect(error: BaseException) -> bool:
    """Return True if the call certainly had its effect, although its answer is unusable."""
    return _has_detail(error, DONE)


def may_still_act(error: BaseException) -> bool:
    """Return True if the call's work may still act, because its worker cut it off and could not stop it."""
    return _has_detail(error, GOES_ON)
