"""Each turn of a session stores its learnings once, at its own end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.knowledge.words import text_with_task
from orga.activities.ports import ToolContext
from orga.client.proof.verify import verify
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.phases.knowledge import LEARNING_TIMEOUT_S
from tests.support.hold import Hold, wait_until
from tests.support.runs.knowing import ON, HeldStore, Judging, all_of, store
from tests.support.runs.loop import WORKER_FACTS, a_loop, histories_of
from tests.support.runs.sessions import (
    begin,
    close_session,
    session_status,
    turn_and_store_events,
    turn_summary,
    wait_for_session,
)

__all__ = ["store"]

ALWAYS = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


async def texts_of(store: SqliteStore) -> list[str]:
    return sorted(text_with_task(item) for item in await all_of(store))


async def until_it_has(store: SqliteStore, count: int) -> list[str]:
    """Wait until the store has this many items, because the result of a turn does not wait for them."""

    async def is_there() -> bool:
        return len(await all_of(store)) == count

    await wait_until(is_there)
    return await texts_of(store)


async def test_each_turn_stores_its_learnings_at_its_end(client: Client, store: SqliteStore) -> None:
    """Another run can recall them while the session continues. The end of the session stores nothing more."""
    engine = Judging()
    model = ScriptedModel([calls("look", reply_text="The door is green."), answers("Green."), answers("Blue.")])
    async with a_loop(client, model, FakeTool("look"), knowledge=store, engine=engine) as loop:
        session = await begin(loop, **ON)
        await session.send("Which colour is the door?")
        first = await until_it_has(store, 1)
        await session.send("And the gate?")
        both = await until_it_has(store, 2)
        last = await close_session(session)
        found = await verify(client, session.id, exported=last.journal)
    assert first == ["Task: Which colour is the door?\nThe door is green.\n\n---\n\nGreen."]
    assert both == sorted([*first, "Task: And the gate?\nBlue."])
    assert await texts_of(store) == both
    assert turn_and_store_events(last) == ["turn 1", "turn 1", "memory", "turn 2", "turn 2", "memory"]
    assert [each.purpose for each in engine.asked].count("learning") == 2
    assert (last.result.tool_calls.proposed, last.result.tool_calls.run) == (1, 1)
    assert found.ok, [check for check in found.checks if not check.ok]


async def test_a_turn_without_learnings_adds_no_event(client: Client, store: SqliteStore) -> None:
    """It adds no call, no timer and no patch marker."""
    async with a_loop(client, [calls("look")], FakeTool("look"), knowledge=store) as loop:
        session = await begin(loop, **ON, max_iterations=1)
        await session.send("look")
        last = await close_session(session)
        [history] = await histories_of(client, session.id)
    marks = [event.marker_recorded_event_attributes.marker_name for event in history.events]
    begun = [event.activity_task_scheduled_event_attributes.activity_id for event in history.events]
    timers = [event.timer_started_event_attributes.start_to_fire_timeout.seconds for event in history.events]
    assert "core_patch" not in marks
    assert "learnings" not in begun
    assert LEARNING_TIMEOUT_S not in timers
    assert (turn_and_store_events(last), await all_of(store)) == (["turn 1", "turn 1"], [])


async def test_nothing_is_stored_twice_across_continue_as_new(client: Client, store: SqliteStore) -> None:
    steps = [
        calls("look", n=1, reply_text="I look."),
        answers("one"),
        calls("look", n=2, reply_text="Again."),
        answers("two"),
    ]
    async with a_loop(client, ScriptedModel(steps), FakeTool("look"), knowledge=store, setup=ALWAYS) as loop:
        session = await begin(loop, **ON)
        for text in ("first", "second"):
            await session.send(text)
        last = await close_session(session)
    assert last.runs >= 4
    assert await texts_of(store) == [
        "Task: first\nI look.\n\n---\n\none",
        "Task: second\nAgain.\n\n---\n\ntwo",
    ]
    assert [each for each in turn_and_store_events(last) if each == "memory"] == ["memory"] * 2


@pytest.mark.parametrize("reason", ["interrupted", "aborted", "error"])
async def test_every_ending_of_a_turn_is_learnt_from(client: Client, store: SqliteStore, reason: str) -> None:
    hold = Hold()

    async def stand_still(_: dict[str, Any], __: ToolContext) -> str:
        return await hold.then("done")

    says = "The door is green."
    steps = (
        [calls("look", reply_text=says)] if reason == "error" else [calls("work", reply_text=says), answers("Blue.")]
    )
    tools = FakeTool("look"), FakeTool("work", stand_still)
    async with a_loop(client, ScriptedModel([*steps]), *tools, knowledge=store) as loop:
        session = await begin(loop, **ON)
        first = asyncio.create_task(session.send("Which colour?"))
        if reason != "error":
            await hold.reached()
            await (session.interrupt("enough") if reason == "interrupted" else session.abort("enough"))
        assert (await first).termination.reason == reason
        last = await (wait_for_session(session) if reason == "aborted" else close_session(session))
    assert await texts_of(store) == [f"Task: Which colour?\n{says}"]
    assert turn_and_store_events(last) == ["turn 1", "turn 1", "memory"]


async def test_denied_learnings_are_not_stored_and_not_retried(client: Client, store: SqliteStore) -> None:
    engine = Judging("store_knowledge")
    async with a_loop(client, [answers("Green.")], knowledge=store, engine=engine) as loop:
        session = await begin(loop, **ON)
        await session.send("Which colour?")
        last = await close_session(session)
    assert (await all_of(store), turn_and_store_events(last)) == ([], ["turn 1", "turn 1"])
    assert [each.purpose for each in engine.asked].count("learning") == 1


async def test_a_turn_result_does_not_wait_for_the_store_and_a_message_meanwhile_starts_a_turn(
    client: Client, tmp_path: Path
) -> None:
    """This holds for guidance, too: the finished turn can no longer read any."""
    held, model = HeldStore(tmp_path / "knowledge.db"), ScriptedModel([answers("Green."), answers("Blue.")])
    async with a_loop(client, model, knowledge=held) as loop:
        session = await begin(loop, **ON)
        assert turn_summary(await session.send("Which colour?")) == (1, "Green.", "completed")
        await held.hold.reached()
        assert await session.post("And the gate?", when_busy="steer") == 2
        assert ((await session_status(session)).turn, len(model.seen)) == (0, 1)
        held.hold.go.set()
        assert turn_summary(await session.result_of(2)) == (2, "Blue.", "completed")
        last = await close_session(session)
        kept = await texts_of(held)
    await held.close()
    assert kept == ["Task: And the gate?\nBlue.", "Task: Which colour?\nGreen."]
    assert turn_and_store_events(last) == ["turn 1", "turn 1", "memory", "turn 2", "turn 2", "memory"]
