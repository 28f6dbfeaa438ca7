"""The delivery activity: which failures are retried, and that no secret leaves in an answer."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from orga.activities.deliver import MAX_RETRY_AFTER_S, DeliverActivities
from orga.activities.ports import NotifyError, RunKey
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.phases.goals.ending import ATTEMPT_S, DELIVERY_TIMEOUT_S, MAX_ATTEMPTS
from orga.workflows.types.goals.deliveries import DeliveryRequest
from tests.support.tools.activities import RUN, Beats

ASKED = DeliveryRequest(
    name="ops", key="k", agent="default", goal="g", reason="completed", confidence=1.0, text="sk-0123456789", size=13
)
FAILED_PLAINLY: dict[str, Any] = {"attempt": 2, "heartbeat_details": [{"failed": 1}]}
CUT_OFF: dict[str, Any] = {"attempt": 2, "heartbeat_details": [None]}


class Taking:
    """A channel that records deliveries or fails."""

    def __init__(self, *, is_repeatable: bool = True, error: NotifyError | None = None) -> None:
        self.is_repeatable = is_repeatable
        self.taken: list[tuple[DeliveryRequest, RunKey]] = []
        self._error = error

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Record the delivery."""
        if self._error:
            raise self._error
        self.taken.append((request, run))


async def failure(channel: Taking, beats: Beats, name: str = "ops") -> ApplicationError:
    with pytest.raises(ApplicationError) as raised:
        await beats.run(DeliverActivities({name: channel}).deliver, ASKED)
    return raised.value


async def test_an_answer_is_delivered_without_the_worker_s_secrets() -> None:
    channel, secrets = Taking(), KnownSecrets.from_environment({"API_KEY": "sk-0123456789"})
    assert await Beats(attempt=3).run(DeliverActivities({"ops": channel}, secrets).deliver, ASKED) == 3
    [(request, run)] = channel.taken
    assert (request.text, run) == ("[redacted]", RUN)


async def test_an_unknown_channel_is_retried_on_another_worker() -> None:
    error = await failure(Taking(), Beats(), "other")
    assert (error.type, error.non_retryable) == ("UnknownDelivery", False)


@pytest.mark.parametrize(
    ("info", "is_repeatable", "is_sent"),
    [
        pytest.param({}, False, True, id="the first attempt"),
        pytest.param(FAILED_PLAINLY, False, True, id="after an attempt that clearly failed"),
        pytest.param(CUT_OFF, False, False, id="after an interrupted attempt of a channel that shows duplicates"),
        pytest.param(CUT_OFF, True, True, id="after an interrupted attempt of a channel that recognises duplicates"),
    ],
)
async def test_nothing_is_sent_twice_to_a_channel_that_shows_duplicates(
    info: dict[str, Any], is_repeatable: bool, is_sent: bool
) -> None:
    channel = Taking(is_repeatable=is_repeatable)
    if is_sent:
        await Beats(**info).run(DeliverActivities({"ops": channel}).deliver, ASKED)
    else:
        error = await failure(channel, Beats(**info))
        assert (error.type, error.non_retryable) == ("MayHaveArrived", True)
    assert len(channel.taken) == is_sent


@pytest.mark.parametrize(
    ("is_repeatable", "may_have_arrived", "kind", "is_final", "is_noted"),
    [
        pytest.param(True, True, "ReceiverUnreachable", False, False, id="a channel that recognises duplicates"),
        pytest.param(False, True, "MayHaveArrived", True, False, id="a chat that did not answer"),
        pytest.param(False, False, "ReceiverUnreachable", False, True, id="a chat that was not reached"),
    ],
)
async def test_a_failure_is_retried_if_no_duplicate_can_be_shown(
    is_repeatable: bool, may_have_arrived: bool, kind: str, is_final: bool, is_noted: bool
) -> None:
    failed = NotifyError("x", kind="ReceiverUnreachable", retryable=True, may_have_arrived=may_have_arrived)
    beats = Beats(attempt=1)
    error = await failure(Taking(is_repeatable=is_repeatable, error=failed), beats)
    assert (error.type, error.non_retryable, error.details) == (kind, is_final, (1,))
    assert ({"failed": 1} in beats.beats) is is_noted


async def test_doubt_about_an_earlier_attempt_is_kept_after_a_later_failure() -> None:
    """Otherwise the next attempt would assume that nothing was ever sent."""
    beats = Beats(**CUT_OFF)
    await failure(Taking(error=NotifyError("x", kind="k", retryable=True)), beats)
    assert {"failed": 2} not in beats.beats


@pytest.mark.parametrize(("wish_s", "delay_s"), [(7.0, 7.0), (9_999.0, MAX_RETRY_AFTER_S)])
async def test_a_requested_wait_is_kept_up_to_a_limit(wish_s: float, delay_s: float) -> None:
    error = await failure(Taking(error=NotifyError("x", kind="k", retryable=True, retry_after_s=wish_s)), Beats())
    assert error.next_retry_delay is not None
    assert error.next_retry_delay.total_seconds() == delay_s


async def test_the_attempts_give_a_receiver_time_to_restart() -> None:
    failed = NotifyError("x", kind="ReceiverUnreachable", retryable=True)
    pauses_s: list[float] = []
    for attempt in range(1, MAX_ATTEMPTS):
        error = await failure(Taking(error=failed), Beats(attempt=attempt))
        assert error.next_retry_delay is not None
        pauses_s.append(error.next_retry_delay.total_seconds())
    assert pauses_s == sorted(pauses_s)
    assert 60 <= sum(pauses_s) < DELIVERY_TIMEOUT_S - ATTEMPT_S
