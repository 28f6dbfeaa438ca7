"""Notifications on a real server, to a real receiver: what waits is told once, and nobody is waited for."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from activities.adapters.webhook.sender import Webhook, WebhookSettings
from activities.adapters.webhook.signature import SigningKey
from activities.ports import ModelRequest, NotifyError, RunKey
from tests.integration.test_approvals import Asks, pending, yes
from tests.support.hold import Hold, until
from tests.support.loop import WORKER_FACTS, FakeTool, Loop, Ran, a_loop, a_worker
from tests.support.questions import has_noted, updated, waiting
from tests.support.scripted import Step, answers, calls
from tests.support.webhook_receiver import SECRET, Received, Receiver, Says, webhook_receiver
from workflows.types.agents import AgentConfig
from workflows.types.context import Setup
from workflows.types.messages import Reply
from workflows.types.names import NOTIFY
from workflows.types.notifications import Notification
from workflows.types.recovery import Recovery
from workflows.types.tools import ToolOptions

TELLS = WORKER_FACTS.model_copy(update={"notify": ("approval", "escalation", "budget")})
TELLS_ALL = WORKER_FACTS.model_copy(update={"notify": ("approval", "escalation", "budget", "ended")})
PAYS: Sequence[Step] = [calls("pay", arguments={"amount": 7}), answers()]


def a_webhook(receiver: Receiver) -> Webhook:
    settings = WebhookSettings(receiver.url, SigningKey.of(SECRET))
    return Webhook(settings, lambda workflow_id: f"http://ui/{workflow_id}")


@asynccontextmanager
async def telling(
    client: Client,
    receiver: Receiver,
    *tools: FakeTool,
    steps: Sequence[Step] = PAYS,
    setup: Setup = TELLS,
    **options: Any,
) -> AsyncGenerator[Loop]:
    """Run a worker that tells the receiver."""
    webhook = a_webhook(receiver)
    try:
        async with a_loop(client, steps, *tools, setup=setup, notifier=webhook, **options) as loop:
            yield loop
    finally:
        await webhook.close()


def attempts(ran: Ran) -> list[str]:
    """Return the ids of the activities that told somebody."""
    scheduled = [e.activity_task_scheduled_event_attributes for history in ran.histories for e in history.events]
    return [each.activity_id for each in scheduled if each.activity_type.name == NOTIFY]


def written(ran: Ran) -> bytes:
    """Return all that the histories hold."""
    return b"".join(event.SerializeToString() for history in ran.histories for event in history.events)


def failures(ran: Ran) -> list[dict[str, Any]]:
    return [entry.data for entry in ran.journal if entry.event == "NotificationFailed"]


def is_signed(received: Received) -> bool:
    at = int(received.headers["webhook-timestamp"])
    expected = SigningKey.of(SECRET).headers(received.message_id, at, received.body)
    return expected["webhook-signature"] == received.headers["webhook-signature"]


async def test_a_held_call_is_told_and_signed(client: Client) -> None:
    pay = FakeTool("pay", effect="irreversible")
    with webhook_receiver() as receiver:
        async with telling(client, receiver, pay, engine=Asks(approvers=("ada",))) as loop:
            handle = await loop.start()
            [hold] = await pending(handle)
            await receiver.has(1)
            await updated(handle, "approve", yes(hold))
            ran = await loop.ended(handle)
    [received] = receiver.received
    approval_id = hold["approval_id"]
    expected = {
        "event": "waiting",
        "kind": "approval",
        "workflow_id": handle.id,
        "agent": "default",
        "wait_id": "approval-1",
        "question": "approve pay?",
        "calls": [
            {
                "tool": "pay",
                "arguments": '{"amount":7}',
                "id": approval_id,
                "reason": "money moves",
                "approvers": ["ada"],
            }
        ],
        "commands": [f"orga approve {handle.id} {approval_id}", f"orga deny {handle.id} {approval_id}"],
        "link": f"http://ui/{handle.id}",
    }
    message = received.message
    assert {key: message[key] for key in expected} == expected
    assert message["run_id"] == handle.first_execution_run_id
    assert message["text"].startswith('default waits (approval): approve pay? [pay {"amount":7} because money moves')
    assert is_signed(received)
    assert (len(pay.contexts), attempts(ran), failures(ran)) == (1, ["notify-approval-1"], [])


async def test_an_escalation_and_a_used_up_budget_are_told_each_once(client: Client) -> None:
    def breaks(arguments: dict[str, Any], context: Any) -> str:
        raise OSError("disk full")

    settings = Recovery(strategy="escalate", queue="storage", max_attempts=1)
    save = FakeTool("save", breaks, options=ToolOptions(recovery=settings))
    with webhook_receiver() as receiver:
        async with telling(client, receiver, save, steps=[calls("save"), answers()]) as loop:
            handle = await loop.start(on_exhausted="ask", max_iterations=1)
            wait = await waiting(handle)
            await receiver.has(1)
            await updated(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": "skip"})
            await receiver.has(2)
            await updated(handle, "extend_budget", {"max_iterations": 9})
            ran = await loop.ended(handle)
    first, second = [received.message for received in receiver.received]
    assert (first["kind"], first["queue"], first["calls"][0]["tool"]) == ("escalation", "storage", "save")
    assert "disk full" in first["error"]
    assert first["commands"][0] == f"orga resolve {handle.id} {wait['wait_id']} --retry"
    assert (second["kind"], second["limit"]) == ("budget", "max_iterations")
    assert second["commands"][0] == f"orga extend {handle.id} --max-iterations 2"
    assert ran.result.termination.reason == "completed"
    assert len(attempts(ran)) == 2


async def test_a_delivery_that_is_repeated_has_the_same_id(client: Client) -> None:
    busy = Says(503, {"retry-after": "0"})
    with webhook_receiver(busy, Says(500), Says(200)) as receiver:
        async with telling(client, receiver, FakeTool("pay"), engine=Asks()) as loop:
            handle = await loop.start()
            [hold] = await pending(handle)
            await receiver.has(3)
            await updated(handle, "deny", yes(hold))
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
async def test_what_no_repetition_helps_is_noted_and_the_run_goes_on(client: Client, says: Says, error: str) -> None:
    with webhook_receiver(says) as receiver:
        async with telling(client, receiver, FakeTool("pay"), engine=Asks()) as loop:
            handle = await loop.start()
            [hold] = await pending(handle)
            await has_noted(handle, "NotificationFailed")
            await updated(handle, "approve", yes(hold))
            ran = await loop.ended(handle)
    assert failures(ran) == [{"about": "approval-1", "error": error}]
    assert len(receiver.received) == 1
    assert ran.result.termination.reason == "completed"
    assert b"t0ken-in-the-address" not in written(ran)


async def test_a_receiver_that_is_down_holds_up_nothing(client: Client) -> None:
    with webhook_receiver() as receiver:
        pass
    pay = FakeTool("pay")
    async with telling(client, receiver, pay, engine=Asks(), setup=TELLS) as loop:
        handle = await loop.start()
        [hold] = await pending(handle)
        await updated(handle, "approve", yes(hold))
        ran = await loop.ended(handle)
    assert (len(pay.contexts), ran.result.termination.reason) == (1, "completed")


HANGS_WHILE = [
    pytest.param("approve", TELLS, "completed", id="it is answered"),
    pytest.param("approve", TELLS.model_copy(update={"roll_over_events": 1}), "completed", id="the run rolls over"),
    pytest.param("abort", TELLS, "aborted", id="the run is aborted"),
    pytest.param("cancel", TELLS, "aborted", id="the run is cancelled"),
]


@pytest.mark.parametrize(("how", "setup", "reason"), HANGS_WHILE)
async def test_a_receiver_that_hangs_is_left(client: Client, how: str, setup: Setup, reason: str) -> None:
    with webhook_receiver(Says(hangs=True)) as receiver:
        async with telling(client, receiver, FakeTool("pay"), engine=Asks(), setup=setup) as loop:
            handle = await loop.start()
            [hold] = await pending(handle)
            await receiver.has(1)
            match how:
                case "approve":
                    await updated(handle, "approve", yes(hold))
                case "abort":
                    await handle.signal("abort", "enough")
                case _:
                    await handle.cancel()
            ran = await loop.ended(handle)
    kinds = [event.event_type for history in ran.histories for event in history.events]
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED in kinds
    assert (ran.result.termination.reason, failures(ran)) == (reason, [])
    assert len({received.message_id for received in receiver.received}) == 1


async def test_each_question_is_told_once_through_continue_as_new(client: Client) -> None:
    facts = TELLS.model_copy(update={"roll_over_events": 1})
    steps = [calls("pay"), calls("pay"), answers()]
    with webhook_receiver() as receiver:
        async with telling(client, receiver, FakeTool("pay"), steps=steps, engine=Asks(), setup=facts) as loop:
            handle = await loop.start()
            for told in (1, 2):
                await receiver.has(told)
                [hold] = await pending(handle)
                await updated(handle, "approve", yes(hold))
                await until_it_goes_on(handle, hold)
            ran = await loop.ended(handle)
    assert [received.message["wait_id"] for received in receiver.received] == ["approval-1", "approval-2"]
    assert (len({received.message_id for received in receiver.received}), len(ran.histories)) == (2, 3)


async def until_it_goes_on(handle: Any, hold: dict[str, Any]) -> None:
    async def moves() -> bool:
        pending_now = (await handle.query("status"))["pending_approvals"]
        return [each["approval_id"] for each in pending_now] != [hold["approval_id"]]

    await until(moves)


async def test_a_worker_that_starts_anew_repeats_what_was_not_taken_and_nothing_else(client: Client) -> None:
    pay = FakeTool("pay")
    with webhook_receiver(Says(hangs=True), Says(200)) as receiver:
        async with telling(client, receiver, pay, engine=Asks()) as loop:
            handle = await loop.start()
            await receiver.has(1)
        webhook = a_webhook(receiver)
        async with a_worker(loop, pay, engine=Asks(), setup=TELLS, notifier=webhook):
            await receiver.has(2)
            [hold] = await pending(handle)
            await updated(handle, "approve", yes(hold))
            ran = await loop.ended(handle)
        await webhook.close()
    assert len({received.message_id for received in receiver.received}) == 1
    assert (len(receiver.received), attempts(ran)) == (2, ["notify-approval-1"])


async def test_the_end_is_told_where_the_config_asks_for_it(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with telling(client, receiver, steps=[answers("done")], setup=TELLS_ALL) as loop:
            ran = await loop.run()
    [received] = receiver.received
    message = received.message
    assert (message["event"], message["reason"], message["workflow_id"]) == ("ended", "completed", ran.handle.id)
    assert attempts(ran) == ["notify-ended"]


async def test_a_delegated_run_tells_its_questions_and_leaves_the_end_to_its_parent(client: Client) -> None:
    delegate = calls("delegate", arguments={"agent": "helper", "task": "pay"})

    def step(request: ModelRequest) -> Reply:
        if any(message.role == "tool" for message in request.messages):
            return answers()
        return calls("pay") if request.tools[0].name == "pay" else delegate

    with webhook_receiver() as receiver:
        pay = FakeTool("pay")
        alone = AgentConfig.model_validate({"tools": [], "delegates": ["helper"]})
        agents = {"default": alone, "helper": AgentConfig(tools=("pay",))}
        async with telling(client, receiver, pay, steps=[step], engine=Asks(), setup=TELLS_ALL, agents=agents) as loop:
            handle = await loop.start()
            await receiver.has(1)
            child = receiver.received[0].message["workflow_id"]
            [hold] = await pending(client.get_workflow_handle(child))
            await updated(client.get_workflow_handle(child), "approve", yes(hold))
            await loop.ended(handle)
    assert [r.message["event"] for r in receiver.received] == ["waiting", "ended"]
    assert (child != handle.id, receiver.received[1].message["workflow_id"]) == (True, handle.id)


async def test_the_end_waits_for_a_receiver_that_hangs_only_shortly(client: Client) -> None:
    with webhook_receiver(Says(hangs=True)) as receiver:
        async with telling(client, receiver, steps=[answers("done")], setup=TELLS_ALL) as loop:
            async with asyncio.timeout(20):
                ran = await loop.run()
    assert (ran.result.termination.reason, [each["about"] for each in failures(ran)]) == ("completed", ["ended"])
    assert ran.result.duration_s < 5


async def test_a_run_that_tells_nobody_has_no_trace_of_it(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with telling(client, receiver, FakeTool("pay"), engine=Asks(), setup=WORKER_FACTS) as loop:
            handle = await loop.start()
            [hold] = await pending(handle)
            await updated(handle, "approve", yes(hold))
            ran = await loop.ended(handle)
    assert (receiver.received, attempts(ran)) == ([], [])
    assert NOTIFY.encode() not in written(ran)


async def test_no_secret_and_no_address_is_in_a_history(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with webhook_receiver(Says(500, {"retry-after": "0"}), Says(401)) as receiver:
        async with telling(client, receiver, FakeTool("pay"), engine=Asks(), setup=TELLS_ALL) as loop:
            handle = await loop.start()
            [hold] = await pending(handle)
            await receiver.has(2)
            await updated(handle, "approve", yes(hold))
            ran = await loop.ended(handle)
    address = receiver.url.removeprefix("http://")
    assert b"money moves" in written(ran)
    assert [secret for secret in (SECRET, address, receiver.url) if secret.encode() in written(ran)] == []
    assert SECRET not in caplog.text
    assert any(event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED for event in ran.history.events)


class Stuck:
    """A notifier that a test can hold."""

    def __init__(self) -> None:
        self.hold = Hold()

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Stand still."""
        await self.hold.then(None)


async def test_the_attempt_itself_is_cut_short_when_the_question_closes(client: Client) -> None:
    """Else a receiver that hangs would keep a socket for each question."""
    stuck = Stuck()
    async with a_loop(client, PAYS, FakeTool("pay"), engine=Asks(), setup=TELLS, notifier=stuck) as loop:
        handle = await loop.start()
        [hold] = await pending(handle)
        await stuck.hold.reached()
        await updated(handle, "approve", yes(hold))
        await loop.ended(handle)
        async with asyncio.timeout(8):
            await stuck.hold.cancelled.wait()


async def test_a_worker_without_a_webhook_leaves_the_message_to_one_that_has_it(client: Client) -> None:
    """The setup was recorded by another worker; this one knows no address."""
    pay, told = FakeTool("pay"), list[Notification]()

    class Keeps:
        async def deliver(self, notification: Notification, run: RunKey) -> None:
            told.append(notification)
            if len(told) == 1:
                raise NotifyError("not now", kind="ReceiverRefused", retryable=True, retry_after_s=0)

    async with a_loop(client, PAYS, pay, engine=Asks(), setup=TELLS) as loop:
        handle = await loop.start()
        [hold] = await pending(handle)
    async with a_worker(loop, pay, engine=Asks(), setup=TELLS, notifier=Keeps()):

        async def is_told() -> bool:
            return len(told) == 2

        await until(is_told)
        await updated(handle, "approve", yes(hold))
        await loop.ended(handle)
    assert told[0] == told[1]
