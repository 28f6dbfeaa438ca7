"""A receiver that fails, hangs or is gone: messages are repeated or given up, and no run is delayed."""

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from orga.activities.ports import NotifyError, RunKey
from orga.testing import FakeTool, answers
from orga.workflows.types.questions import Notification
from orga.workflows.types.setup import Setup
from tests.support.hold import Hold, wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import a_loop, a_worker
from tests.support.runs.notified import (
    NOTIFIES,
    NOTIFIES_ALL,
    PAYS,
    a_notifying_loop,
    a_webhook,
    failures,
    history_bytes,
    is_signed,
    notify_activity_ids,
)
from tests.support.runs.questions import send_update, wait_for_note
from tests.support.web.webhook_receiver import Says, webhook_receiver


async def test_a_repeated_delivery_has_the_same_id(client: Client) -> None:
    busy = Says(503, {"retry-after": "0"})
    with webhook_receiver(busy, Says(500), Says(200)) as receiver:
        async with a_notifying_loop(client, receiver, FakeTool("pay"), engine=Asks()) as loop:
            handle = await loop.start()
            [question] = await wait_for_held_calls(handle)
            await receiver.has(3)
            await send_update(handle, "deny", approval_argument(question))
            ran = await loop.ended(handle)
    assert len({received.message_id for received in receiver.received}) == 1
    assert len({received.body for received in receiver.received}) == 1
    assert all(map(is_signed, receiver.received))
    assert (len(receiver.received), failures(ran)) == (3, [])


@pytest.mark.parametrize(
    ("says", "error"),
    [
        pytest.param(
            Says(302, {"location": "http://127.0.0.1:9/elsewhere"}),
            "ReceiverRedirects: the receiver of notifications answered 302, a redirect, which is not followed: "
            "give the address that it leads to",
            id="a redirect",
        ),
        pytest.param(Says(403), "ReceiverRefused: the receiver of notifications answered 403", id="a refusal"),
    ],
)
async def test_a_permanent_failure_is_noted_and_the_run_continues(client: Client, says: Says, error: str) -> None:
    with webhook_receiver(says) as receiver:
        async with a_notifying_loop(client, receiver, FakeTool("pay"), engine=Asks()) as loop:
            handle = await loop.start()
            [question] = await wait_for_held_calls(handle)
            await wait_for_note(handle, "NotificationFailed")
            await send_update(handle, "approve", approval_argument(question))
            ran = await loop.ended(handle)
    assert failures(ran) == [{"about": "approval-1", "error": error}]
    assert len(receiver.received) == 1
    assert ran.result.termination.reason == "completed"
    assert b"t0ken-in-the-address" not in history_bytes(ran)


async def test_a_receiver_that_is_down_delays_nothing(client: Client) -> None:
    with webhook_receiver() as receiver:
        pass
    pay = FakeTool("pay")
    async with a_notifying_loop(client, receiver, pay, engine=Asks(), setup=NOTIFIES) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, "approve", approval_argument(question))
        ran = await loop.ended(handle)
    assert (len(pay.contexts), ran.result.termination.reason) == (1, "completed")


HANGS_WHILE = [
    pytest.param("approve", NOTIFIES, "completed", id="it is answered"),
    pytest.param(
        "approve", NOTIFIES.model_copy(update={"roll_over_events": 1}), "completed", id="the run continues as new"
    ),
    pytest.param("abort", NOTIFIES, "aborted", id="the run is aborted"),
    pytest.param("cancel", NOTIFIES, "aborted", id="the run is cancelled"),
]


@pytest.mark.parametrize(("how", "setup", "reason"), HANGS_WHILE)
async def test_a_hanging_delivery_is_cancelled(client: Client, how: str, setup: Setup, reason: str) -> None:
    with webhook_receiver(Says(hangs=True)) as receiver:
        async with a_notifying_loop(client, receiver, FakeTool("pay"), engine=Asks(), setup=setup) as loop:
            handle = await loop.start()
            [question] = await wait_for_held_calls(handle)
            await receiver.has(1)
            match how:
                case "approve":
                    await send_update(handle, "approve", approval_argument(question))
                case "abort":
                    await handle.signal("abort", "enough")
                case _:
                    await handle.cancel()
            ran = await loop.ended(handle)
    kinds = [event.event_type for history in ran.histories for event in history.events]
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED in kinds
    assert (ran.result.termination.reason, failures(ran)) == (reason, [])
    assert len({received.message_id for received in receiver.received}) == 1


async def test_a_restarted_worker_repeats_only_the_undelivered_message(client: Client) -> None:
    pay = FakeTool("pay")
    with webhook_receiver(Says(hangs=True), Says(200)) as receiver:
        async with a_notifying_loop(client, receiver, pay, engine=Asks()) as loop:
            handle = await loop.start()
            await receiver.has(1)
        webhook = a_webhook(receiver)
        async with a_worker(loop, pay, engine=Asks(), setup=NOTIFIES, notifier=webhook):
            await receiver.has(2)
            [question] = await wait_for_held_calls(handle)
            await send_update(handle, "approve", approval_argument(question))
            ran = await loop.ended(handle)
        await webhook.close()
    assert len({received.message_id for received in receiver.received}) == 1
    assert (len(receiver.received), notify_activity_ids(ran)) == (2, ["notify-approval-1"])


async def test_the_end_waits_only_briefly_for_a_hanging_receiver(client: Client) -> None:
    with webhook_receiver(Says(hangs=True)) as receiver:
        async with a_notifying_loop(client, receiver, steps=[answers("done")], setup=NOTIFIES_ALL) as loop:
            async with asyncio.timeout(20):
                ran = await loop.run()
    assert (ran.result.termination.reason, [each["about"] for each in failures(ran)]) == ("completed", ["ended"])
    assert ran.result.duration_s < 5


class Stuck:
    """A notifier that a test can hold."""

    def __init__(self) -> None:
        self.hold = Hold()

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Block until released."""
        await self.hold.then(None)


async def test_the_attempt_itself_is_cancelled_when_the_question_closes(client: Client) -> None:
    """Otherwise a hanging receiver would keep a socket for each question."""
    stuck = Stuck()
    async with a_loop(client, PAYS, FakeTool("pay"), engine=Asks(), setup=NOTIFIES, notifier=stuck) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await stuck.hold.reached()
        await send_update(handle, "approve", approval_argument(question))
        await loop.ended(handle)
        async with asyncio.timeout(8):
            await stuck.hold.cancelled.wait()


async def test_a_worker_without_a_webhook_leaves_the_message_to_one_that_has_it(client: Client) -> None:
    """Another worker recorded the setup. This worker has no address."""
    pay, reported = FakeTool("pay"), list[Notification]()

    class Keeps:
        async def deliver(self, notification: Notification, run: RunKey) -> None:
            reported.append(notification)
            if len(reported) == 1:
                raise NotifyError("not now", kind="ReceiverRefused", retryable=True, retry_after_s=0)

    async with a_loop(client, PAYS, pay, engine=Asks(), setup=NOTIFIES) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
    async with a_worker(loop, pay, engine=Asks(), setup=NOTIFIES, notifier=Keeps()):

        async def was_repeated() -> bool:
            return len(reported) == 2

        await wait_until(was_repeated)
        await send_update(handle, "approve", approval_argument(question))
        await loop.ended(handle)
    assert reported[0] == reported[1]
