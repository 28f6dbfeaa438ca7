"""A worker dies within or after a turn of a session: the next worker returns the result to the waiting client."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.client.errors import NoAnswer
from orga.client.runs.sessions import SessionHandle, start_session
from tests.support.crash.stage import NEVER, PATIENCE, all_tools
from tests.support.crash.worker import CrashWorker, Fate
from tests.support.hold import wait_until
from tests.support.runs.knowing import all_of
from tests.support.runs.sessions import close_session, turn_and_store_events

PATIENCE_S = PATIENCE.total_seconds()

Outlived = Callable[[], Awaitable[None]]
"""Waits for the death of the first worker, and starts the second."""


@asynccontextmanager
async def dying(
    client: Client, folder: Path, at: str, text: str, *, remembers: bool = False, **given: Any
) -> AsyncGenerator[tuple[SessionHandle, Outlived]]:
    """Start a session whose worker dies at this moment, and send a message."""
    queue, effects, address = f"sessions-{uuid4()}", folder / "effects", client.service_client.config.target_host
    effects.touch()
    workers = [
        CrashWorker(address, queue, effects, NEVER, fate, all_tools, remembers=remembers) for fate in (Fate(at), Fate())
    ]
    session = await start_session(client, task_queue=queue, **given)
    started: list[BaseProcess] = [workers[0].started()]

    async def is_taken() -> bool:
        with suppress(NoAnswer):
            return await session.post(text, message_id="m1") == 1
        return False

    async def restart() -> None:
        await asyncio.to_thread(started[0].join, PATIENCE_S)
        assert started[0].exitcode == -signal.SIGKILL
        started.append(workers[1].started())

    try:
        await wait_until(is_taken, PATIENCE_S)
        yield session, restart
    finally:
        for process in started:
            process.kill()
            await asyncio.to_thread(process.join)


async def test_a_turn_survives_its_worker(client: Client, tmp_path: Path) -> None:
    """A client that waits for the turn keeps waiting through the death of the worker."""
    async with dying(client, tmp_path, "note", "look note send") as (session, restart):
        turn = asyncio.create_task(session.result_of(1))
        await restart()
        ended = await asyncio.wait_for(turn, PATIENCE_S)
        last = await close_session(session)
    assert (ended.termination.reason, last.result.termination.detail) == ("completed", "closed")


async def test_learnings_of_a_turn_exist_once_although_the_worker_dies_after_storing(
    client: Client, tmp_path: Path
) -> None:
    async with dying(client, tmp_path, "stored memory", "look", remembers=True, config={"knowledge": {}}) as (
        session,
        restart,
    ):
        await restart()
        ended = await asyncio.wait_for(session.result_of(1), PATIENCE_S)
        last = await close_session(session)
    assert ended.termination.reason == "completed"
    kept = SqliteStore(tmp_path / "knowledge.db", HashingEmbedder())
    try:
        items = await all_of(kept)
    finally:
        await kept.close()
    assert [item.kind for item in items] == ["memory"]
    assert turn_and_store_events(last) == ["turn 1", "turn 1", "memory"]
