"""Helpers for all activities: run, log context, heartbeats, earlier attempts, failures, retry delays, error texts."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from orga.activities.ports import Acted, RunKey
from orga.workflows.types.json_text import as_object
from orga.workflows.types.limits import OUT_OF_TIME
from orga.workflows.types.questions import INPUT_REQUIRED
from orga.workflows.types.tool_calls.tools import (
    CALL_STOPPED,
    DONE,
    EARLIER_UNKNOWN,
    GOES_ON,
    MAYBE_DONE,
    NOT_DONE,
    UNKNOWN_OUTCOMES,
    WORKER_SHUTDOWN,
)


def current_run_key() -> RunKey:
    info = activity.info()
    return RunKey(info.workflow_id or "", info.workflow_run_id or "")


def log_iteration(iteration: int) -> None:
    """Add the iteration to all log records of this activity. Other activities have log contexts of their own."""
    structlog.contextvars.bind_contextvars(iteration=iteration)


def log_iteration_of_call(activity_id: str) -> None:
    """Add the iteration of a tool call, whose id is `iteration.index`."""
    iteration = activity_id.partition(".")[0]
    if iteration.isdecimal():
        log_iteration(int(iteration))


@contextmanager
def stops_as_failures(*, is_repeatable: bool = True) -> Generator[None]:
    """Turn a cancellation from outside of the run into a failure. The run's own cancellation stays one.

    Outside means: the worker stops, or somebody pauses or resets the activity. If it is not repeatable, the failure is
    final, because the server would otherwise start a paused activity again, however few attempts it has.
    """
    try:
        yield
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is None or details.cancel_requested:
            raise
        if details.worker_shutdown:
            raise worker_stopped_error() from None
        if not (details.paused or details.reset):
            raise
        text = f"its activity was {'paused' if details.paused else 'reset'} meanwhile"
        raise _cut_off_error(text, CALL_STOPPED, is_final=not is_repeatable) from None


def worker_stopped_error() -> ApplicationError:
    """Return the failure of the current activity, which its stopping worker cuts off."""
    return _cut_off_error("the worker was stopped meanwhile", WORKER_SHUTDOWN)


def _cut_off_error(text: str, kind: str, *, is_final: bool = False) -> ApplicationError:
    activity.logger.warning("%s was cut off: %s", activity.info().activity_type, text)
    # the SDK logs a failure that is not benign with a traceback, which shows nothing here
    return ApplicationError(text, type=kind, non_retryable=is_final, category=ApplicationErrorCategory.BENIGN)


CHANGED_HEARTBEAT_S = 0.2
"""Seconds between heartbeats while the details change."""

HEARTBEAT_INTERVAL_S = 2 * CHANGED_HEARTBEAT_S
"""Seconds between heartbeats while they stay the same. The server's response to a heartbeat delivers a cancellation."""


@asynccontextmanager
async def heartbeats(details: Callable[[], Any] = lambda: None) -> AsyncGenerator[None]:
    """Send heartbeats with `details()` until the block ends. Changed details are sent sooner.

    In a local activity or outside of activities there are no heartbeats, and this does nothing.
    """
    if not activity.in_activity() or activity.info().is_local:
        yield
        return
    sender = asyncio.create_task(_send_heartbeats(details))
    try:
        yield
    finally:
        sender.cancel()


@asynccontextmanager
async def application_code(what: str, redact: Callable[[str], str]) -> AsyncGenerator[None]:
    """Send heartbeats while a critic or summarizer of the application works.

    Its errors become retryable, and secrets in them are hidden.
    """
    try:
        async with heartbeats():
            yield
    except Exception as error:
        text = redact(f"{what} failed: {type(error).__name__}: {error_text(error)}")
        raise ApplicationError(text, type="OwnPartFailed") from None


async def _send_heartbeats(details: Callable[[], Any]) -> None:
    last: Any = None
    while True:
        for _ in range(round(HEARTBEAT_INTERVAL_S / CHANGED_HEARTBEAT_S)):
            await asyncio.sleep(CHANGED_HEARTBEAT_S)
            if details() != last:
                break
        last = details()
        activity.heartbeat(last)


def error_text(error: BaseException) -> str:
    """Return the error's text. `__str__` may be code of the application, and may raise."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text cannot be read: {type(failure).__name__})"


_FAILED_KEY = "failed"
"""Key in the details of a heartbeat. Its value is the number of an attempt that, like all before it, had no effect."""

_EFFECT_DETAILS: dict[Acted | None, tuple[str, ...]] = {"no": (NOT_DONE,), "maybe": (MAYBE_DONE,), "yes": (DONE,)}


def attempt_failure(
    message: str,
    kind: str,
    *,
    retryable: bool,
    acted: Acted | None = None,
    is_out_of_time: bool = False,
    goes_on: bool = False,
    more: tuple[Any, ...] = (),
) -> ApplicationError:
    """Return the failure of this attempt. Its details also show if an earlier attempt may have had its effect.

    If a retry may follow and no attempt so far seems to have had its effect, a heartbeat records that. Heartbeat
    details are all that the next attempt gets from this one.

    Args:
        acted: Whether this attempt had its effect. None: the tool does not report it.
        is_out_of_time: True if no time is left for another attempt. The workflow then gets the failure at once.
        goes_on: True if the call was cut off but could not be stopped.
        more: Other details.
    """
    is_retried = retryable and not is_out_of_time
    earlier_may_have_acted = attempt_may_have_acted()
    this_may_have_acted = kind in UNKNOWN_OUTCOMES or acted in {"maybe", "yes"}
    had_no_effect = not earlier_may_have_acted and not this_may_have_acted
    if is_retried and had_no_effect and not activity.info().is_local:
        record_attempt_without_effect()
    facts = {EARLIER_UNKNOWN: earlier_may_have_acted, OUT_OF_TIME: retryable and is_out_of_time, GOES_ON: goes_on}
    details = (*_EFFECT_DETAILS.get(acted, ()), *(fact for fact, holds in facts.items() if holds), *more)
    # a server that asks for input has not failed, so no log and no metric counts it
    category = ApplicationErrorCategory.BENIGN if kind == INPUT_REQUIRED else ApplicationErrorCategory.UNSPECIFIED
    return ApplicationError(message, *details, type=kind, non_retryable=not is_retried, category=category)


def record_attempt_without_effect() -> None:
    """Record for the next attempt that neither this attempt nor an earlier one had an effect."""
    activity.heartbeat({_FAILED_KEY: activity.info().attempt})


def attempt_may_have_acted() -> bool:
    """Return whether an earlier attempt may have had its effect. False if the previous one recorded that none had.

    Somebody who resets an activity makes its next attempt the first one again, but heartbeats of earlier ones remain.
    """
    info = activity.info()
    last = as_object(info.heartbeat_details[-1]) if info.heartbeat_details else {}
    has_earlier_attempt = info.attempt > 1 or bool(info.heartbeat_details)
    is_recorded_without_effect = last.get(_FAILED_KEY) == info.attempt - 1
    return has_earlier_attempt and not is_recorded_without_effect


def retry_backoff_s() -> float:
    """Return the delay before Temporal retries this attempt."""
    info = activity.info()
    policy = info.retry_policy
    if policy is None:
        return 0.0
    longest = policy.maximum_interval or policy.initial_interval * 100
    pause = policy.initial_interval.total_seconds() * policy.backoff_coefficient ** (info.attempt - 1)
    return min(pause, longest.total_seconds())


def is_retry_too_late(left_s: float | None, running_s: float) -> bool:
    """Return whether the next attempt would begin after the run's deadline.

    Args:
        left_s: Seconds that the run had left when it scheduled this activity. None: the run has no deadline.
        running_s: Seconds that this attempt has taken, measured here. All other times are the server's, because the
            clock of this machine may differ from the server's.
    """
    if left_s is None:
        return False
    info = activity.info()
    waited_s = (info.started_time - info.scheduled_time).total_seconds()
    return waited_s + running_s + retry_backoff_s() >= left_s
