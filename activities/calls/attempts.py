"""Earlier attempts of a call and what they may have done, and the delay before the next one."""

from collections.abc import Mapping
from typing import Any, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.ports import Acted
from orga.workflows.types.input import OUT_OF_TIME
from orga.workflows.types.tool_calls.tools import DONE, EARLIER_UNKNOWN, GOES_ON, MAYBE_DONE, NOT_DONE, UNKNOWN_OUTCOMES

_FAILED_KEY = "failed"
_EFFECT_DETAILS: dict[Acted | None, tuple[str, ...]] = {
    None: (),
    "no": (NOT_DONE,),
    "maybe": (MAYBE_DONE,),
    "yes": (DONE,),
}


def attempt_failure(
    message: str,
    kind: str,
    *,
    retryable: bool,
    acted: Acted | None = None,
    is_last: bool = False,
    goes_on: bool = False,
) -> ApplicationError:
    """Return the failure of this attempt; it tells, too, when an earlier one may have had its effect.

    One that another try could cure, for which there is no time, `is_last`: the run hears what went wrong while it still
    can go on, where it would have had to give up on a call that waits. One that `goes_on` was cut off and not stopped.

    The server hands the last heartbeat of an attempt on to the next one, and nothing else.
    """
    is_unsure = may_have_acted()
    is_plain = kind not in UNKNOWN_OUTCOMES and acted in {None, "no"}
    if retryable and not is_last and not is_unsure and is_plain and not activity.info().is_local:
        note_plain_failure()
    is_out_of_time = retryable and is_last
    told = {EARLIER_UNKNOWN: is_unsure, OUT_OF_TIME: is_out_of_time, GOES_ON: goes_on}
    details = (*_EFFECT_DETAILS[acted], *(word for word, is_so in told.items() if is_so))
    return ApplicationError(message, *details, type=kind, non_retryable=not retryable or is_out_of_time)


def note_plain_failure() -> None:
    """Tell the next attempt that this one has had no effect, which it can know only if the ones before had none."""
    activity.heartbeat({_FAILED_KEY: activity.info().attempt})


def may_have_acted() -> bool:
    """Return whether an attempt before this one may have had its effect: not all of them are known to have failed."""
    info = activity.info()
    return info.attempt > 1 and _failed_attempt(info.heartbeat_details) != info.attempt - 1


def _failed_attempt(beats: Any) -> Any:
    """Return the number of the attempt that wrote the last heartbeat once it had failed."""
    last = beats[-1] if beats else None
    return cast(Mapping[str, Any], last).get(_FAILED_KEY) if isinstance(last, Mapping) else None


def retry_backoff_s() -> float:
    """Return the seconds after which it would, should this attempt fail."""
    info = activity.info()
    policy = info.retry_policy
    if policy is None:
        return 0.0
    longest = policy.maximum_interval or policy.initial_interval * 100
    pause = policy.initial_interval.total_seconds() * policy.backoff_coefficient ** (info.attempt - 1)
    return min(pause, longest.total_seconds())


def is_retry_too_late(left_s: float | None, running_s: float) -> bool:
    """Return whether the next try would begin once the run's clock has stopped.

    Reckoned from the server's own times, since this machine's clock may differ.

    Args:
        left_s: Seconds that the run had when it asked for this; None where it did not say.
        running_s: Seconds that this attempt has taken.
    """
    if left_s is None:
        return False
    info = activity.info()
    return (info.started_time - info.scheduled_time).total_seconds() + running_s + retry_backoff_s() >= left_s
