"""A question of a goal or an agent shows up everywhere people look: attributes, inbox, notifications."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.client.runs.inbox import inbox
from orga.client.server.search_attributes import register_missing
from orga.client.testing.script import Step
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.names import WAITING
from tests.support.hold import wait_until
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.runs.goals import answer_goal, start, wait_for_goal
from tests.support.runs.loop import WORKER_FACTS, Loop, a_loop
from tests.support.runs.notified import a_webhook
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.web.webhook_receiver import Receiver, webhook_receiver

TELLS = WORKER_FACTS.model_copy(update={"notify": ("answer",), "search_attributes": True})
ASKING = {"default": AgentConfig(tools=("look", "ask_user"))}


def a_goal() -> GoalModel:
    asks, done = says(action="ask_user", question="Which year?", confidence=0.9), says(action="done", confidence=0.9)
    fair = evaluation_reply("a", relevance=3, completeness=3, usability=3, goal_progress=3)
    return GoalModel(plan=says(steps=[a_step("a")]), evaluate=fair, decide=[asks, done])


@asynccontextmanager
async def notifying_loop(client: Client, receiver: Receiver, model: GoalModel | list[Step]) -> AsyncGenerator[Loop]:
    await register_missing(client)
    webhook = a_webhook(receiver)
    try:
        async with a_loop(client, model, FakeTool("look"), setup=TELLS, agents=ASKING, notifier=webhook) as loop:
            yield loop
    finally:
        await webhook.close()


async def is_known_everywhere(client: Client, handle: WorkflowHandle[Any, Any], receiver: Receiver) -> None:
    asked = await wait_for_question(handle)
    await receiver.has(1)
    await shows(client, handle, "answer")
    [entry] = [each async for each in inbox(client, kind="answer") if each.run_id == handle.id]
    assert entry.wait is not None
    assert (entry.kind, entry.wait.wait_id, entry.wait.question) == ("answer", asked["wait_id"], "Which year?")
    message = receiver.received[0].message
    assert (message["kind"], message["wait_id"], message["question"]) == ("answer", asked["wait_id"], "Which year?")
    assert message["commands"][0].startswith(f"orga answer {handle.id} TEXT")


async def shows(client: Client, handle: WorkflowHandle[Any, Any], kind: str | None) -> None:
    """Wait until the run has the attribute, and visibility lists it so."""

    async def is_listed() -> bool:
        [listed] = [run async for run in client.list_workflows(f"WorkflowId = '{handle.id}'")] or [None]
        return listed is not None and listed.typed_search_attributes.get(WAITING) == kind

    await wait_until(is_listed)


async def test_a_question_of_a_goal_is_known_everywhere(client: Client) -> None:
    with webhook_receiver() as receiver:
        async with notifying_loop(client, receiver, a_goal()) as loop:
            handle = await start(loop)
            await is_known_everywhere(client, handle, receiver)
            await answer_goal(handle, "1999")
            pursued = await wait_for_goal(handle, client)
            await shows(client, handle, None)
    assert (pursued.reason, len(receiver.received)) == ("completed", 1)
    assert [each async for each in inbox(client, kind="answer") if each.run_id == handle.id] == []


@pytest.mark.parametrize("options", [{}, {"options": ["1998", "1999"]}], ids=["free", "with options"])
async def test_a_question_of_an_agent_is_known_everywhere(client: Client, options: dict[str, Any]) -> None:
    asks = calls("ask_user", arguments={"question": "Which year?", **options})
    with webhook_receiver() as receiver:
        async with notifying_loop(client, receiver, [asks, answers()]) as loop:
            handle = await loop.start()
            await is_known_everywhere(client, handle, receiver)
            await send_update(handle, "answer", "1999")
            ran = await loop.ended(handle)
    assert (ran.result.termination.reason, len(receiver.received)) == ("completed", 1)
