"""When Temporal would try an activity again by itself."""

from temporalio import activity


def backoff_s() -> float:
    """Return the seconds after which it would, should this attempt fail."""
    info = activity.info()
    policy = info.retry_policy
    if policy is None:
        return 0.0
    longest = policy.maximum_interval or policy.initial_interval * 100
    pause = policy.initial_interval.total_seconds() * policy.backoff_coefficient ** (info.attempt - 1)
    return min(pause, longest.total_seconds())


def comes_too_late(left_s: float | None, running_s: float) -> bool:
    """Return whether the next try would begin once the run's clock has stopped.

    Reckoned from the server's own times, since this machine's clock may differ.

    Args:
        left_s: Seconds that the run had when it asked for this; None where it did not say.
        running_s: Seconds that this attempt has taken.
    """
    if left_s is None:
        return False
    info = activity.info()
    return (info.started_time - info.scheduled_time).total_seconds() + running_s + backoff_s() >= left_s
