"""The inbox lists waits over all runs. For runs that have ended it lists only failed deliveries."""

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.activities.ports import ModelRequest, ToolContext, ToolError
from orga.client.runs.inbox import InboxEntry, inbox
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import DEAD_LETTERS, WAITING
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import wait_until
from tests.support.runs.delivered import a_hook, a_room, delivery_setup, one_step_model
from tests.support.runs.goals import start, wait_for_goal
from tests.support.runs.loop import Loop, a_loop
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.web.webhook_receiver import Says, webhook_receiver

FACTS = Setup(agent="", model="", search_attributes=True)


@pytest.fixture(autouse=True)
async def _attributes(client: Client) -> None:
    await register_missing(client)


def broken(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ToolError("the disk is full")


def save(queue: str = "default") -> FakeTool:
    recovery = Recovery(strategy="escalate", max_attempts=1, queue=queue)
    return FakeTool("save", broken, effect="idempotent", options=ToolOptions(recovery=recovery))


def saves_once(request: ModelRequest) -> Reply:
    """Save once, then answer. Several runs share the model."""
    return answers() if any(message.role == "tool" for message in request.messages) else calls("save")


async def questions(client: Client, *loops: Loop, **wanted: Any) -> list[InboxEntry]:
    """Return the inbox entries of these loops. The server is shared with other tests."""
    queues = {loop.task_queue for loop in loops}
    return [question async for question in inbox(client, **wanted) if question.task_queue in queues]


async def wait_until_indexed(client: Client, *handles: WorkflowHandle[Any, Any], kind: str | None) -> None:
    """Wait until visibility, which lags, lists what the runs wait for."""

    async def is_there() -> bool:
        found = [(await handle.describe()).typed_search_attributes.get(WAITING) for handle in handles]
        listed = [run async for run in client.list_workflows(_ids(handles))]
        shown = [run.typed_search_attributes.get(WAITING) for run in listed]
        return found == shown == [kind] * len(handles)

    await wait_until(is_there)


def _ids(handles: tuple[WorkflowHandle[Any, Any], ...]) -> str:
    return " OR ".join(f"WorkflowId = '{handle.id}'" for handle in handles)


async def test_the_inbox_lists_all_runs_oldest_first_and_can_be_filtered(client: Client) -> None:
    async with (
        a_loop(client, [saves_once], save("storage"), setup=FACTS) as loop,
        a_loop(client, [calls("save")] * 3, FakeTool("save"), setup=FACTS) as other,
    ):
        first, second = await loop.start(), await loop.start()
        third = await other.start(on_exhausted="ask", max_iterations=1)
        await wait_until_indexed(client, first, second, kind="escalation")
        await wait_until_indexed(client, third, kind="budget")

        found = await questions(client, loop, other)
        assert [question.run_id for question in found] == [first.id, second.id, third.id]
        assert [(question.agent, question.kind) for question in found] == [
            ("default", "escalation"),
            ("default", "escalation"),
            ("default", "budget"),
        ]
        assert found[0].wait is not None
        assert found[0].wait.data["error"] == "ToolError: the disk is full"
        assert [q.run_id for q in await questions(client, loop, other, kind="budget")] == [third.id]
        assert [q.run_id for q in await questions(client, loop, other, queue="storage")] == [first.id, second.id]
        assert await questions(client, loop, other, queue="storage", kind="budget") == []

        await send_update(first, "resolve_escalation", {"escalation_id": "call-1.0-0", "choice": "skip"})
        await loop.ended(first)
        assert [q.run_id for q in await questions(client, loop)] == [second.id]
        for handle in (second, third):
            await handle.signal("abort", "enough")
            await handle.result()


async def test_a_run_without_a_worker_is_listed_with_its_kind_only(client: Client) -> None:
    async with a_loop(client, [calls("save"), answers()], save("storage"), setup=FACTS) as loop:
        handle = await loop.start()
        await wait_until_indexed(client, handle, kind="escalation")
    async with a_loop(client, [answers()], setup=FACTS) as other:
        found = await questions(client, loop, other, queue="somebody else's")
    assert [(question.run_id, question.kind, question.wait) for question in found] == [(handle.id, "escalation", None)]
    await handle.terminate()


async def _resolve(handle: WorkflowHandle[Any, Any]) -> None:
    await send_update(handle, "resolve_escalation", {"escalation_id": "call-1.0-0", "choice": "abort"})


async def _abort(handle: WorkflowHandle[Any, Any]) -> None:
    await handle.signal("abort", "enough")


async def _cancel(handle: WorkflowHandle[Any, Any]) -> None:
    await handle.cancel()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(_resolve, id="a person decides"),
        pytest.param(_abort, id="aborted while it waits"),
        pytest.param(_cancel, id="cancelled while it waits"),
    ],
)
async def test_an_ended_run_is_no_longer_listed_as_waiting(client: Client, end: Callable[..., Any]) -> None:
    async with a_loop(client, [calls("save", "save"), answers()], save(), setup=FACTS) as loop:
        handle = await loop.start()
        await wait_until_indexed(client, handle, kind="escalation")
        await end(handle)
        ran = await loop.ended(handle)
        assert (await handle.describe()).typed_search_attributes.get(WAITING) is None
        assert await questions(client, loop) == []
    assert ran.events.count("ApprovalRequested") == ran.events.count("ApprovalResolved")


async def test_a_budget_question_of_an_ended_run_is_not_listed(client: Client) -> None:
    async with a_loop(client, [calls("save")] * 3, FakeTool("save"), setup=FACTS) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        await wait_until_indexed(client, handle, kind="budget")
        await handle.signal("abort", "enough")
        await loop.ended(handle)
        assert (await handle.describe()).typed_search_attributes.get(WAITING) is None


async def test_a_failed_delivery_is_listed_for_requeue(client: Client) -> None:
    """It is a dead letter of the goal, which has ended and cannot report later that it was sent."""
    setup = delivery_setup(hook="webhook", room="discord").model_copy(update={"search_attributes": True})
    with webhook_receiver(Says(403)) as receiver, webhook_receiver() as chat:
        channels = {"hook": a_hook(receiver), "room": a_room(chat)}
        async with a_loop(client, one_step_model(), FakeTool("look"), setup=setup, deliveries=channels) as loop:
            handle = await start(loop)
            pursued = await wait_for_goal(handle, client)

            async def is_listed() -> bool:
                return bool(await questions(client, loop))

            await wait_until(is_listed)
            [found] = await questions(client, loop)
            assert await questions(client, loop, kind="delivery") == [found]
            assert await questions(client, loop, kind="answer") == []
            assert await questions(client, loop, queue="storage") == []
    assert pursued.reason == "completed"
    assert (found.run_id, found.agent, found.kind, found.wait) == (handle.id, "default", "delivery", None)
    failed = found.undelivered
    assert failed is not None
    assert (failed.delivery.name, failed.delivery.status) == ("hook", "failed")
    assert "ReceiverRefused" in failed.delivery.error
    assert (await handle.describe()).typed_search_attributes.get(DEAD_LETTERS) == 1


async def test_a_terminated_run_is_not_in_the_inbox_despite_its_attribute(client: Client) -> None:
    async with a_loop(client, [calls("save"), answers()], save(), setup=FACTS) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        await wait_until_indexed(client, handle, kind="escalation")
        await handle.terminate("an operator")

        async def is_gone() -> bool:
            return await questions(client, loop) == []

        await wait_until(is_gone)
        assert (await handle.describe()).typed_search_attributes.get(WAITING) == "escalation"
