"""Notifications from a real server to a real receiver: each question is sent once, signed, and without secrets."""

from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from orga.activities.ports import ModelRequest
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import NOTIFY
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import WORKER_FACTS
from tests.support.runs.notified import (
    NOTIFIES,
    NOTIFIES_ALL,
    a_notifying_loop,
    failures,
    history_bytes,
    is_signed,
    notify_activity_ids,
)
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.web.webhook_receiver import SECRET, Says, webhook_receiver


async def test_a_held_call_is_sent_and_signed(client: Client) -> None:
    pay = FakeTool("pay", effect="irreversible")
    with webhook_receiver() as receiver:
        async with a_notifying_loop(client, receiver, pay, engine=Asks(approvers=("ada",))) as loop:
            handle = await loop.start()
            [question] = await wait_for_held_calls(handle)
            await receiver.has(1)
            await send_update(handle, "approve", approval_argument(question))
            ran = await loop.ended(handle)
    [received] = receiver.received
    approval_id = question["approval_id"]
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
    assert (len(pay.contexts), notify_activity_ids(ran), failures(ran)) == (1, ["notify-approval-1"], [])


async def test_an_escalation_and_an_exhausted_budget_are_each_sent_once(client: Client) -> None:
    def breaks(arguments: dict[str, Any], context: Any) -> str:
        raise OSError("disk full")

    settings = Recovery(strategy="escalate", queue="storage", max_attempts=1)
    save = FakeTool("save", breaks, options=ToolOptions(recovery=settings))
    with webhook_receiver() as receiver:
        async with a_notifying_loop(client, receiver, save, steps=[calls("save"), answers()]) as loop:
            handle = await loop.start(on_exhausted="ask", max_iterations=1)
            wait = await wait_for_question(handle)
            await receiver.has(1)
            await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": "skip"})
            await receiver.has(2)
            await send_update(handle, "extend_budget", {"max_iterations": 9})
            ran = await loop.ended(handle)
    first, second = [received.message for received in receiver.received]
    assert (first["kind"], first["queue"], first["calls"][0]["tool"]) == ("escalation", "storage", "save")
    assert "disk full" in first["error"]
    assert first["commands"][0] == f"orga resolve {handle.id} {wait['wait_id']} --retry"
    assert (second["kind"], second["limit"]) == ("budget", "max_iterations")
    assert second["commands"][0] == f"orga extend {handle.id} --max-iterations 2"
    assert ran.result.termination.reason == "completed"
    assert len(notify_activity_ids(ran)) == 2


async def test_each_question_is_sent_once_across_continue_as_new(client: Client) -> None:
    facts = NOTIFIES.model_copy(update={"roll_over_events": 1})
    steps = [calls("pay"), calls("pay"), answers()]
    with webhook_receiver() as receiver:
        async with a_notifying_loop(client, receiver, FakeTool("pay"), steps=steps, engine=Asks(), setup=facts) as loop:
            handle = await loop.start()
            for reported in (1, 2):
                await receiver.has(reported)
                [question] = await wait_for_held_calls(handle)
                await send_update(handle, "approve", approval_argument(question))
                await until_decided(handle, question)
            ran = await loop.ended(handle)
    assert [received.message["wait_id"] for received in receiver.received] == ["approval-1", "approval-2"]
    assert (len({received.message_id for received in receiver.received}), len(ran.histories)) == (2, 3)


async def until_decided(handle: Any, question: dict[str, Any]) -> None:
    async def moves() -> bool:
        pending_now = (await handle.query("status"))["pending_approvals"]
        return [each["approval_id"] for each in pending_now] != [question["approval_id"]]

    await wait_until(moves)


async def test_the_end_is_sent_if_the_config_asks_for_it(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with a_notifying_loop(client, receiver, steps=[answers("done")], setup=NOTIFIES_ALL) as loop:
            ran = await loop.run()
    [received] = receiver.received
    message = received.message
    assert (message["event"], message["reason"], message["workflow_id"]) == ("ended", "completed", ran.handle.id)
    assert notify_activity_ids(ran) == ["notify-ended"]


async def test_a_delegate_sends_its_questions_and_only_its_parent_sends_the_end(client: Client) -> None:
    delegate = calls("delegate", arguments={"agent": "helper", "task": "pay"})

    def step(request: ModelRequest) -> Reply:
        if any(message.role == "tool" for message in request.messages):
            return answers()
        return calls("pay") if request.tools[0].name == "pay" else delegate

    with webhook_receiver() as receiver:
        pay = FakeTool("pay")
        alone = AgentConfig.model_validate({"tools": [], "delegates": ["helper"]})
        agents = {"default": alone, "helper": AgentConfig(tools=("pay",))}
        async with a_notifying_loop(
            client, receiver, pay, steps=[step], engine=Asks(), setup=NOTIFIES_ALL, agents=agents
        ) as loop:
            handle = await loop.start()
            await receiver.has(1)
            child = receiver.received[0].message["workflow_id"]
            [question] = await wait_for_held_calls(client.get_workflow_handle(child))
            await send_update(client.get_workflow_handle(child), "approve", approval_argument(question))
            await loop.ended(handle)
    assert [r.message["event"] for r in receiver.received] == ["waiting", "ended"]
    assert (child != handle.id, receiver.received[1].message["workflow_id"]) == (True, handle.id)


async def test_a_run_without_notifications_has_no_trace_of_them(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with a_notifying_loop(client, receiver, FakeTool("pay"), engine=Asks(), setup=WORKER_FACTS) as loop:
            handle = await loop.start()
            [question] = await wait_for_held_calls(handle)
            await send_update(handle, "approve", approval_argument(question))
            ran = await loop.ended(handle)
    assert (receiver.received, notify_activity_ids(ran)) == ([], [])
    assert NOTIFY.encode() not in history_bytes(ran)


async def test_no_secret_and_no_address_is_in_a_history(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with webhook_receiver(Says(500, {"retry-after": "0"}), Says(401)) as receiver:
        async with a_notifying_loop(client, receiver, FakeTool("pay"), engine=Asks(), setup=NOTIFIES_ALL) as loop:
            handle = await loop.start()
            [question] = await wait_for_held_calls(handle)
            await receiver.has(2)
            await send_update(handle, "approve", approval_argument(question))
            ran = await loop.ended(handle)
    address = receiver.url.removeprefix("http://")
    assert b"money moves" in history_bytes(ran)
    assert [secret for secret in (SECRET, address, receiver.url) if secret.encode() in history_bytes(ran)] == []
    assert SECRET not in caplog.text
    assert any(event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED for event in ran.history.events)
