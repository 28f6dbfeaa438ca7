"""A receiver that is down for days, on the time-skipping server: attempts last an hour, then only the inbox remains."""

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from orga.activities.ports import NotifyError, RunKey
from orga.testing import FakeTool
from orga.workflows.types.questions import Notification
from tests.support.hold import wait_until
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import a_loop
from tests.support.runs.notified import NOTIFIES, PAYS, failures, notify_activity_ids
from tests.support.runs.questions import send_update

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
async def environment() -> AsyncGenerator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


class Down:
    """A receiver that always answers 503."""

    def __init__(self) -> None:
        self.notifications = list[Notification]()

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Refuse the message."""
        self.notifications.append(notification)
        raise NotifyError("answered 503", kind="ReceiverRefused", retryable=True)


async def test_a_receiver_that_is_down_is_tried_for_an_hour_and_the_question_stays_open(
    environment: WorkflowEnvironment,
) -> None:
    down, pay = Down(), FakeTool("pay")
    engine = Asks(expires_s=30 * DAY.total_seconds())
    async with a_loop(environment.client, PAYS, pay, engine=engine, setup=NOTIFIES, notifier=down) as loop:
        loop.execution_timeout = 60 * DAY
        handle = await loop.start(timeout_s=60)

        async def was_tried() -> bool:
            return bool(down.notifications)

        await wait_until(was_tried)
        await environment.sleep(2 * DAY)
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, "approve", approval_argument(question))
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "completed"
    assert (notify_activity_ids(ran), len(failures(ran)), len(pay.contexts)) == (["notify-approval-1"], 1, 1)
    assert 60 <= len(down.notifications) <= 70
    assert len({each.message_id for each in down.notifications}) == 1
