"""An attempt knows about earlier attempts only from the last heartbeat."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from orga.activities.calls.activity import attempt_failure, attempt_may_have_acted, is_retry_too_late
from orga.workflows.phases.failures import is_infrastructure_failure
from orga.workflows.types.limits import OUT_OF_TIME
from orga.workflows.types.tool_calls.tools import EARLIER_UNKNOWN, TIME_LIMIT
from tests.support.tools.activities import Beats

PAUSE = RetryPolicy(initial_interval=timedelta(seconds=10), backoff_coefficient=2.0)


@pytest.mark.parametrize(
    ("attempt", "left_s", "running_s", "expected"),
    [
        pytest.param(1, 15.0, 1.0, False, id="the next try fits"),
        pytest.param(1, 10.5, 1.0, True, id="it would start after the end"),
        pytest.param(2, 15.0, 1.0, True, id="the pauses grow"),
        pytest.param(1, None, 1.0, False, id="the time left is unknown"),
    ],
)
async def test_a_retry_after_the_end_is_too_late(
    attempt: int, left_s: float | None, running_s: float, expected: bool
) -> None:
    async def asked(_: object) -> bool:
        return is_retry_too_late(left_s, running_s)

    assert await Beats(attempt=attempt, retry_policy=PAUSE).run(asked, None) is expected


@pytest.mark.parametrize(("retryable", "is_out_of_time"), [(True, False), (True, True), (False, True)])
async def test_the_last_attempt_is_final_and_reports_a_lack_of_time(retryable: bool, is_out_of_time: bool) -> None:
    async def failing(_: object) -> ApplicationError:
        return attempt_failure("429", "Http429", retryable=retryable, acted="no", is_out_of_time=is_out_of_time)

    error = await Beats().run(failing, None)
    assert error.non_retryable is (not retryable or is_out_of_time)
    assert (OUT_OF_TIME in error.details) is (retryable and is_out_of_time)
    assert is_infrastructure_failure(error) is retryable


async def is_unsure(attempt: int, last: list[Any]) -> bool:
    async def asked(request: Any) -> bool:
        return attempt_may_have_acted()

    return await Beats(attempt=attempt, heartbeat_details=last).run(asked, None)


@pytest.mark.parametrize(
    ("attempt", "last", "expected"),
    [
        pytest.param(1, [], False, id="the first attempt"),
        pytest.param(2, [], True, id="the previous one was lost before any heartbeat"),
        pytest.param(2, [{"note": ""}], True, id="the previous one was lost while it worked"),
        pytest.param(2, [{"failed": 1}], False, id="the previous one failed"),
        pytest.param(3, [{"failed": 1}], True, id="one failed, then one was lost"),
        pytest.param(3, [{"failed": 2}], False, id="both failed"),
        pytest.param(2, ["half done"], True, id="a heartbeat of another worker"),
        pytest.param(1, [{"note": ""}], True, id="somebody reset the activity while an attempt worked"),
        pytest.param(1, [{"failed": 2}], True, id="somebody reset the activity after two failures"),
    ],
)
async def test_an_earlier_attempt_may_have_acted(attempt: int, last: list[Any], expected: bool) -> None:
    assert await is_unsure(attempt, last) is expected


@given(silent=st.lists(st.booleans(), min_size=1, max_size=6))
async def test_the_last_failure_records_whether_any_attempt_was_lost(silent: list[bool]) -> None:
    """Each attempt passes on only its last heartbeat, which keeps the information."""
    last: list[Any] = []

    async def fails(request: Any) -> tuple[Any, ...]:
        return tuple(attempt_failure("down", "ConnectionError", retryable=True).details)

    for attempt, went_silent in enumerate(silent, 1):
        beats = Beats(attempt=attempt, heartbeat_details=last)
        reported = await beats.run(fails, None)
        assert (EARLIER_UNKNOWN in reported) is any(silent[: attempt - 1])
        last = last if went_silent else beats.beats or last


@pytest.mark.parametrize(
    ("kind", "retryable", "is_local", "expected"),
    [
        pytest.param("ConnectionError", True, False, [{"failed": 1}], id="an ordinary failure"),
        pytest.param("ToolError", False, False, [], id="final, without a next attempt"),
        pytest.param(TIME_LIMIT, True, False, [], id="cut off, so it may have acted"),
        pytest.param("ConnectionError", True, True, [], id="a local activity has no heartbeats"),
    ],
)
async def test_an_attempt_passes_this_on(kind: str, retryable: bool, is_local: bool, expected: list[Any]) -> None:
    async def fails(request: Any) -> None:
        attempt_failure("down", kind, retryable=retryable)

    beats = Beats(is_local=is_local)
    await beats.run(fails, None)
    assert beats.beats == expected
