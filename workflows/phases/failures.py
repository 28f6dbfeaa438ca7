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


def is_out_of_time(error: BaseException) -> bool:
    """Return True if the attempts used up their time, or the next one would come too late."""
    if isinstance(error, ActivityError) and error.retry_state == RetryState.TIMEOUT:
        return True
    cause = root_cause(error)
    if isinstance(cause, ApplicationError):
        return OUT_OF_TIME in cause.details
    return isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_CLOSE


def is_invalid_input(error: BaseException) -> bool:
    cause = root_cause(error)
    return isinstance(cause, ApplicationError) and cause.type == "InvalidInput"


def is_infrastructure_failure(error: BaseException, final: Collection[str] = ()) -> bool:
    """Return True if the failure counts against the tool's health: a time-out, or a failure that a retry might cure.

    `final` are the error types that the tool's options call final.
    """
    cause = root_cause(error)
    if isinstance(cause, ApplicationError):
        may_be_cured = not cause.non_retryable or OUT_OF_TIME in cause.details
        return may_be_cured and cause.type not in OUTSIDE_STOPS and cause.type not in final
    return isinstance(cause, TimeoutError)


def is_turned_away_by_worker(error: BaseException) -> bool:
    """Return True if a worker rejected the call before it started: by an open circuit, or without a permit."""
    cause = root_cause(error)
    return isinstance(cause, ApplicationError) and cause.type in {CIRCUIT_OPEN, NOT_PERMITTED}


def is_context_overflow(error: BaseException) -> bool:
    """Return True if the provider refused a model call because its context is too long."""
    cause = root_cause(error)
    return isinstance(cause, ApplicationError) and cause.type == "ContextOverflow"


def is_refused_content(error: BaseException) -> bool:
    """Return True if a content filter of the provider refused the input of a model call."""
    cause = root_cause(error)
    return isinstance(cause, ApplicationError) and cause.type == "ContentRefused"


def asked_inputs(error: BaseException) -> AskedInputs | None:
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
    if cause.type in UNKNOWN_OUTCOMES or not {EARLIER_UNKNOWN, MAYBE_DONE, DONE}.isdisjoint(_text_details(cause)):
        return True
    return effect == "irreversible" and NOT_DONE not in cause.details


def had_effect(error: BaseException) -> bool:
    """Return True if the call certainly had its effect, although its answer is unusable."""
    cause = root_cause(error)
    return isinstance(cause, ApplicationError) and DONE in cause.details


def may_still_act(error: BaseException) -> bool:
    """Return True if the call's work may still act, because its worker cut it off and could not stop it."""
    cause = root_cause(error)
    return isinstance(cause, ApplicationError) and GOES_ON in cause.details


def _text_details(error: ApplicationError) -> set[str]:
    """Return the details that are text. A foreign worker may send other JSON, which no set can hold."""
    return {detail for detail in error.details if isinstance(detail, str)}
