"""Notifications of runs that are rewound, forked, paused or ask many questions: one message for each question."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.client.past.fork import fork
from orga.client.past.rewind import rewind
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.agents import AgentConfig
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.notified import NOTIFIES_ALL, PAYS, a_notifying_loop, failures, notify_activity_ids
from tests.support.runs.questions import send_update
from tests.support.runs.rewound import wait_for_rewound
from tests.support.web.webhook_receiver import Says, webhook_receiver

TWICE = [*PAYS[:1], *PAYS]


async def test_a_question_asked_again_after_a_rewind_is_a_new_message(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with a_notifying_loop(client, receiver, FakeTool("pay"), steps=TWICE, engine=Asks()) as loop:
            handle = await loop.start()
            await receiver.has(1)
            await rewind(client, handle.id, 0)
            await receiver.has(2)
            [question] = await wait_for_held_calls(handle)
            await send_update(handle, "approve", approval_argument(question))
            ran = await wait_for_rewound(client, AgentHandle(client, handle.id))
    assert len({received.message_id for received in receiver.received}) == 2
    assert len({received.message["run_id"] for received in receiver.received}) == 2
    assert (ran.result.termination.reason, failures(ran)) == ("completed", [])


async def test_a_fork_of_a_waiting_run_reports_its_own_question(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with a_notifying_loop(client, receiver, FakeTool("pay"), steps=TWICE, engine=Asks()) as loop:
            handle = await loop.start()
            await receiver.has(1)
            forked = await fork(client, handle.id, 0)
            await receiver.has(2)
            [question] = await wait_for_held_calls(client.get_workflow_handle(forked.id))
            await send_update(client.get_workflow_handle(forked.id), "approve", approval_argument(question))
            await wait_for_rewound(client, forked)
            await handle.signal("abort", "enough")
            await loop.ended(handle)
    assert [received.message["workflow_id"] for received in receiver.received] == [handle.id, forked.id]
    assert len({received.message_id for received in receiver.received}) == 2


async def test_a_run_paused_while_it_waits_sends_no_message_twice(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with a_notifying_loop(client, receiver, FakeTool("pay"), engine=Asks(), setup=NOTIFIES_ALL) as loop:
            handle = await loop.start()
            await receiver.has(1)
            await handle.signal("pause")
            [question] = await wait_for_held_calls(handle)
            await send_update(handle, "approve", approval_argument(question))
            await handle.signal("resume")
            await loop.ended(handle)
    assert [received.message["event"] for received in receiver.received] == ["waiting", "ended"]


@pytest.mark.parametrize(
    ("says", "paid"),
    [
        pytest.param(Says(200), 4, id="delivered, and all answered"),
        pytest.param(Says(hangs=True), 0, id="cancelled by an abort"),
    ],
)
async def test_each_of_many_questions_at_once_is_a_separate_message(client: Client, says: Says, paid: int) -> None:
    pays: dict[str, Any] = {"steps": [{"tool": "pay", "arguments": {}, "kind": "final"}]}
    steps, pay = [calls(*["saga"] * 4, arguments=pays), answers()], FakeTool("pay", effect="irreversible")
    agents = {"default": AgentConfig(tools=("pay", "saga"))}
    with webhook_receiver(says) as receiver:
        async with a_notifying_loop(client, receiver, pay, steps=steps, engine=Asks(), agents=agents) as loop:
            handle = await loop.start()
            await receiver.has(4)
            for question in await wait_for_held_calls(handle, 4):
                if paid:
                    await send_update(handle, "approve", approval_argument(question))
            if not paid:
                await handle.signal("abort", "enough")
            ran = await loop.ended(handle)
    assert len({received.message_id for received in receiver.received}) == 4
    assert (len(receiver.received), len(notify_activity_ids(ran)), failures(ran)) == (4, 4, [])
    assert len(pay.contexts) == paid


async def test_an_undelivered_end_notification_is_noted_before_the_end(client: Client) -> None:
    with webhook_receiver(Says(403)) as receiver:
        async with a_notifying_loop(client, receiver, steps=[answers("done")], setup=NOTIFIES_ALL) as loop:
            ran = await loop.run()
    assert ran.events[-2:] == ["NotificationFailed", "Terminated"]
