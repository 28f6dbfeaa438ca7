"""A session that continues as new, within a turn or between two, remains the same session."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.hold import Hold, wait_until
from tests.support.runs.loop import WORKER_FACTS, a_loop, histories_of
from tests.support.runs.sessions import begin, close_session, session_status, turn_summary

ALWAYS = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


async def test_a_session_continues_as_new_within_turns_and_between_them(client: Client) -> None:
    """Clients that wait for a turn get its result from the next segment, and no key is used twice."""
    look = FakeTool("look", effect="irreversible")
    steps = [calls("look", n=1), calls("look", n=1), answers("one"), calls("look", n=1), answers("two"), answers("3")]
    model = ScriptedModel(steps)
    async with a_loop(client, model, look, setup=ALWAYS) as loop:
        session = await begin(loop, max_iterations=3)
        first = await session.send("first", message_id="m1")
        second, again = await asyncio.gather(session.send("second"), session.send("first", message_id="m1"))
        third = await session.send("third")
        assert await session.result_of(1) == first
        status = await session_status(session)
        last = await close_session(session)
    assert [turn_summary(turn) for turn in (first, second, third)] == [
        (1, "one", "completed"),
        (2, "two", "completed"),
        (3, "3", "completed"),
    ]
    assert (first.iterations, second.iterations, third.iterations) == (3, 2, 1)
    assert again == first
    assert last.runs >= 6
    assert (status.usage.model_calls, last.result.usage.model_calls) == (6, 6)
    assert len({context.idempotency_key for context in look.contexts}) == 3
    reported = [message.text for message in model.seen[-1].messages if message.role in {"user", "assistant"}]
    assert [text for text in reported if text] == ["first", "one", "second", "two", "third"]
    assert [e.data["turn"] for e in last.journal if e.event == "TurnEnded"] == [1, 2, 3]


async def test_a_client_that_waits_for_a_turn_is_redirected_to_the_next_segment(client: Client) -> None:
    """The tool blocks until the client waits. The end of the iteration makes the run continue as new."""
    hold, later = Hold(), Hold()

    async def work(_: dict[str, Any], __: ToolContext) -> str:
        return await hold.then("done")

    model = ScriptedModel([calls("work"), later.step(answers("one"))])
    async with a_loop(client, model, FakeTool("work", work), setup=ALWAYS) as loop:
        session = await begin(loop)
        turn = await session.post("first")
        awaiting = [asyncio.create_task(session.result_of(turn)) for _ in range(8)]
        await hold.reached()
        before = len(await histories_of(client, session.id))
        hold.go.set()
        await later.reached()

        async def has_gone_on() -> bool:
            return len(await histories_of(client, session.id)) > before

        await wait_until(has_gone_on)
        later.go.set()
        assert {turn_summary(each) for each in await asyncio.gather(*awaiting)} == {(1, "one", "completed")}
        await close_session(session)


async def test_queued_messages_are_carried_over(client: Client) -> None:
    hold = Hold()
    model = ScriptedModel([hold.step(calls("look")), answers("one"), answers("two"), answers("three")])
    async with a_loop(client, model, FakeTool("look"), setup=ALWAYS) as loop:
        session = await begin(loop)
        assert [await session.post(text) for text in ("first", "second", "third")] == [1, 2, 3]
        await hold.reached()
        hold.go.set()
        assert turn_summary(await session.result_of(3)) == (3, "three", "completed")
        last = await close_session(session)
    assert [(each.turn, each.output) for each in last.result.latest] == [(1, "one"), (2, "two"), (3, "three")]


@pytest.mark.parametrize("size", [100_000])
async def test_a_long_answer_is_returned_whole(client: Client, size: int) -> None:
    async with a_loop(client, [answers("x" * size), answers("short")], setup=ALWAYS) as loop:
        session = await begin(loop, context_token_budget=1_000_000)
        assert len((await session.send("write much")).output) == size
        assert turn_summary(await session.send("and now?")) == (2, "short", "completed")
        kept = await session.result_of(1)
        await close_session(session)
    assert len(kept.output) < size
    assert "the conversation has all of it" in kept.output


async def test_continue_as_new_within_a_turn_loses_nothing_that_waits(client: Client) -> None:
    """Clients wait for this turn and the next ones, guidance was sent, and messages were sent twice."""
    hold, later = Hold(), Hold()

    async def work(_: dict[str, Any], __: ToolContext) -> str:
        return await hold.then("done")

    model = ScriptedModel(
        [calls("work"), later.step(answers("one")), answers("one, brief"), answers("2"), answers("3")]
    )
    async with a_loop(client, model, FakeTool("work", work), setup=ALWAYS) as loop:
        session = await begin(loop)
        texts = ["first", "second", "third"]
        turns = [await session.post(text, message_id=text) for text in texts]
        awaiting = [asyncio.create_task(session.result_of(turn)) for turn in (*turns, *turns)]
        await hold.reached()
        before = len(await histories_of(client, session.id))
        hold.go.set()
        await later.reached()

        async def has_gone_on() -> bool:
            return len(await histories_of(client, session.id)) > before

        await wait_until(has_gone_on)
        assert await session.post("be brief", when_busy="steer") == 1
        assert [await session.post(text, message_id=text) for text in texts] == turns
        later.go.set()
        found = [turn_summary(each) for each in await asyncio.gather(*awaiting)]
        last = await close_session(session)
    assert found == [(1, "one, brief", "completed"), (2, "2", "completed"), (3, "3", "completed")] * 2
    asked = [message.text for message in model.seen[-1].messages if message.role == "user"]
    assert asked == ["first", "[Guidance from the operator] be brief", "second", "third"]
    assert [e.data["turn"] for e in last.journal if e.event == "TurnStarted"] == turns
