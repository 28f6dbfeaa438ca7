"""A session whose history is recorded: three turns, one of them cut, guidance, a message that waits."""

import asyncio
from typing import Any
from uuid import uuid4

from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.client.runs.sessions import start_session
from orga.testing import FakeTool, answers, calls
from tests.replay.plain import a_stage, look
from tests.support.hold import Hold
from tests.support.runs.loop import Ran


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
