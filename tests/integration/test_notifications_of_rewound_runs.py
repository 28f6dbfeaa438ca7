"""Notifications of runs that are set back, forked, paused or full of questions: each question is told once."""

from typing import Any

import pytest
from temporalio.client import Client

from activities.ports import RunKey
from client.agents import AgentHandle
from client.fork import fork
from client.rewind import rewind
from tests.integration.test_approvals import Asks, pending, yes
from tests.integration.test_notifications import PAYS, TELLS, TELLS_ALL, attempts, failures, telling
from tests.support.hold import Hold, until
from tests.support.loop import FakeTool, a_loop
from tests.support.questions import updated
from tests.support.rewound import ended
from tests.support.scripted import answers, calls
from tests.support.webhook_receiver import Says, webhook_receiver
from workflows.types.notifications import Notification


def saga(amount: int) -> dict[str, Any]:
    return {"steps": [{"tool": "pay", "arguments": {"amount": amount}, "kind": "final"}]}


async def test_a_question_that_is_asked_anew_after_a_rewind_is_another_message(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with telling(client, receiver, FakeTool("pay"), steps=[*PAYS[:1], *PAYS], engine=Asks()) as loop:
            handle = await loop.start()
            await receiver.has(1)
            await rewind(client, handle.id, 0)
            await receiver.has(2)
            [hold] = await pending(handle)
            await updated(handle, "approve", yes(hold))
            ran = await ended(client, AgentHandle(client, handle.id))
    assert len({received.message_id for received in receiver.received}) == 2
    assert len({received.message["run_id"] for received in receiver.received}) == 2
    assert (ran.result.termination.reason, failures(ran)) == ("completed", [])


async def test_a_fork_of_a_run_that_waits_tells_its_own_question(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with telling(client, receiver, FakeTool("pay"), steps=[*PAYS[:1], *PAYS], engine=Asks()) as loop:
            handle = await loop.start()
            await receiver.has(1)
            forked = await fork(client, handle.id, 0)
            await receiver.has(2)
            [hold] = await pending(client.get_workflow_handle(forked.id))
            await updated(client.get_workflow_handle(forked.id), "approve", yes(hold))
            await ended(client, forked)
            await handle.signal("abort", "enough")
            await loop.ended(handle)
    assert [received.message["workflow_id"] for received in receiver.received] == [handle.id, forked.id]
    assert len({received.message_id for received in receiver.received}) == 2


async def test_a_paused_run_tells_its_question_all_the_same(client: Client) -> None:
    hold = Hold()
    with webhook_receiver() as receiver:
        steps = [hold.step(calls("pay")), answers()]
        async with telling(client, receiver, FakeTool("pay"), steps=steps, engine=Asks(), setup=TELLS_ALL) as loop:
            handle = await loop.start()
            await hold.reached()
            await handle.signal("pause")
            hold.release()
            await handle.signal("resume")
            await receiver.has(1)
            await handle.signal("pause")
            [held] = await pending(handle)
            await updated(handle, "approve", yes(held))
            await handle.signal("resume")
            await receiver.has(2)
            ran = await loop.ended(handle)
    assert [received.message["event"] for received in receiver.received] == ["waiting", "ended"]
    assert ran.events[-1] == "Terminated"


@pytest.mark.parametrize("how", ["answered", "aborted"])
async def test_many_questions_at_once_are_each_told_once_or_withdrawn(client: Client, how: str) -> None:
    many = calls(*["saga"] * 4, arguments=saga(1))
    says = Says(200) if how == "answered" else Says(hangs=True)
    with webhook_receiver(says) as receiver:
        agent = {"tools": ["pay", "saga"]}
        from workflows.types.agents import AgentConfig

        pay = FakeTool("pay", effect="irreversible")
        async with telling(
            client,
            receiver,
            pay,
            steps=[many, answers()],
            engine=Asks(),
            agents={"default": AgentConfig.model_validate(agent)},
        ) as loop:
            handle = await loop.start()
            await receiver.has(4)
            holds = await pending(handle, 4)
            if how == "answered":
                for hold in holds:
                    await updated(handle, "approve", yes(hold))
            else:
                await handle.signal("abort", "enough")
            ran = await loop.ended(handle)
    assert len({received.message_id for received in receiver.received}) == 4
    assert len(receiver.received) == len(attempts(ran)) == 4
    assert failures(ran) == []
    assert len(pay.contexts) == (4 if how == "answered" else 0)


class Late:
    """A notifier whose answer comes when the question is closed."""

    def __init__(self) -> None:
        self.hold = Hold()
        self.told = list[str]()

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        self.told.append(notification.wait_id)
        if len(self.told) == 1:
            await self.hold.then(None)


async def test_an_end_that_cannot_be_told_is_noted_before_the_end(client: Client) -> None:
    with webhook_receiver(Says(403)) as receiver:
        async with telling(client, receiver, steps=[answers("done")], setup=TELLS_ALL) as loop:
            ran = await loop.run()
    assert ran.events[-2:] == ["NotificationFailed", "Terminated"]
