"""Sessions whose histories are recorded: an interrupted turn, guidance, queued messages, references, learnings."""

import asyncio
from contextlib import suppress
from typing import Any
from uuid import uuid4

from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.client.runs.sessions import start_session
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.input import LoopConfig, RunKnowledge
from tests.replay.plain import a_stage, look
from tests.support.hold import Hold, wait_for_event
from tests.support.runs.delegates import Cast, agent, delegates
from tests.support.runs.loop import Ran
from tests.support.values.shelf import Shelf


async def talked(client: Client) -> Ran:
    hold = Hold()

    async def stand_still(_: dict[str, Any], __: ToolContext) -> str:
        return await hold.then("never")

    steps = [calls("look"), answers("one"), calls("wait"), answers("three")]
    async with a_stage(client, steps, look(), FakeTool("wait", stand_still, effect="irreversible")) as loop:
        session = await start_session(client, task_queue=loop.task_queue, session_id=f"session-{uuid4()}")
        await session.send("look around")
        await session.steer("be brief")
        second = asyncio.create_task(session.send("wait for it"))
        await hold.reached()
        await session.send("never mind", when_busy="interrupt")
        await second
        await session.close()
        return await loop.ended(client.get_workflow_handle(session.id))


async def looked_up(client: Client) -> Ran:
    """The references of each message are looked up before its turn."""
    parameters = {"type": "object", "required": ["url"]}
    fetch = FakeTool("fetch_url", lambda arguments, context: f"page of {arguments['url']}", parameters=parameters)
    async with a_stage(client, [answers("one"), answers("two"), answers("three")], fetch) as loop:
        session = await start_session(client, task_queue=loop.task_queue, session_id=f"session-{uuid4()}")
        for text in ("See https://a.io", "Is https://a.io all?", "No: see https://b.io and https://c.io"):
            await session.send(text)
        await session.close()
        return await loop.ended(client.get_workflow_handle(session.id))


async def taught(client: Client) -> Ran:
    """The learnings of each turn are stored at its end. The second turn has none."""
    steps = [calls("look", reply_text="I look."), answers("green"), calls("look"), calls("look"), answers("blue")]
    async with a_stage(client, steps, look(), knowledge=Shelf().as_store) as loop:
        session = await start_session(
            client,
            task_queue=loop.task_queue,
            session_id=f"session-{uuid4()}",
            config=LoopConfig(knowledge=RunKnowledge(), max_iterations=2),
        )
        for text in ("first", "second", "third"):
            await session.send(text)
        await session.close()
        return await loop.ended(client.get_workflow_handle(session.id))


GOES_ON_S = 7.0
"""Seconds. Longer than a run's grace."""


async def delegate_awaited(client: Client) -> Ran:
    """A turn is interrupted while the call of its delegate continues, and the session waits for the call."""
    entered = asyncio.Event()

    async def go_on(_: dict[str, Any], __: ToolContext) -> str:
        work = asyncio.ensure_future(asyncio.sleep(GOES_ON_S))
        while not work.done():
            entered.set()
            with suppress(asyncio.CancelledError):
                await asyncio.shield(work)
        return "booked"

    agents = {"lead": agent("lead", "helper"), "helper": agent("helper", tools=["book"])}
    cast = Cast({"lead": [delegates("helper"), answers("other")], "helper": [calls("book")]})
    book = FakeTool("book", go_on, effect="irreversible")
    async with a_stage(client, cast, book, agents=agents) as loop:
        session_id = f"session-{uuid4()}"
        session = await start_session(client, agent="lead", task_queue=loop.task_queue, session_id=session_id)
        first = asyncio.create_task(session.send("book it"))
        await wait_for_event(entered)
        await session.send("something else", when_busy="interrupt")
        await first
        await session.close()
        return await loop.ended(client.get_workflow_handle(session.id))
