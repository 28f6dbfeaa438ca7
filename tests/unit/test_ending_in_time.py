"""A worker that is stopped has time for all that it does then, before its command kills it."""

from orga.client.workers.ending import LAST_S, SHUTDOWN_GRACE
from orga.client.workers.process import STOP_TIMEOUT_S


def test_the_last_step_fits_behind_what_activities_get() -> None:
    assert SHUTDOWN_GRACE.total_seconds() + LAST_S < STOP_TIMEOUT_S
