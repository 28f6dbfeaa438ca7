"""Sessions on a real server: turns with their own budgets in one conversation, and messages during a turn."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.client.errors import NotTakenYet, QueueFull, Refused, RunEnded, SessionBusy, SessionClosed, TurnUnknown
from orga.client.runs.sessions import SessionHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.hold import Hold
from tests.support.runs.loop import Loop, a_loop, a_worker
from tests.support.runs.sessions import (
    begin,
    close_session,
    session_status,
    turn_summary,
    wait_for_session,
    wait_for_status,
)


async def test_each_turn_has_all_of_its_budgets_and_the_whole_conversation(client: Client) -> None:
    """A fork with a task would inherit the spending, so its answers would be empty from the fourth turn on."""
    steps = [step for n in range(1, 7) for step in (calls("look", n=n), answers(f"answer {n}", cost_usd=0.01))]
    model = ScriptedModel(steps)
    look = FakeTool("look", effect="irreversible")
    async with a_loop(client, model, look) as loop:
        session = await begin(loop, max_iterations=3, max_total_tokens=300, max_tool_calls=1, max_model_calls=2)
        talked = [await session.send(f"question {n}") for n in range(1, 7)]
        status = await session_status(session)
        last = await close_session(session)

    assert [turn_summary(turn) for turn in talked] == [(n, f"answer {n}", "completed") for n in range(1, 7)]
    assert {(turn.iterations, turn.usage.total_tokens, turn.tool_calls.run) for turn in talked} == {(2, 220, 1)}
    assert (status.turns, status.turn, status.usage.total_tokens, status.tool_calls.run) == (6, 0, 6 * 220, 6)
    assert (status.budgets.iterations, status.phase) == (3, "idle")
    reported = [message.text for message in model.seen[-1].messages if message.role == "user"]
    assert reported == [f"question {n}" for n in range(1, 7)]
    assert len({context.idempotency_key for context in look.contexts}) == 6
    assert (last.result.turns, last.result.usage.model_calls, last.result.output) == (6, 12, "answer 6")
    assert (last.result.termination.reason, last.result.termination.detail) == ("completed", "closed")
    assert last.result.usage.cost_usd == pytest.approx(0.06)
    assert (last.events.count("TurnStarted"), last.events.count("TurnEnded")) == (6, 6)


@pytest.fixture
def hold() -> Hold:
    return Hold()


async def busy_session(loop: Loop, hold: Hold) -> tuple[SessionHandle, asyncio.Task[Any]]:
    """Return a session whose first turn blocks."""
    session = await begin(loop)
    first = asyncio.create_task(session.send("first"))
    await hold.reached()
    return session, first


async def test_a_message_during_a_turn_waits_for_its_own_turn(client: Client, hold: Hold) -> None:
    model = ScriptedModel([hold.step(answers("one")), answers("two"), answers("three")])
    async with a_loop(client, model) as loop:
        session, first = await busy_session(loop, hold)
        assert (await session.post("second"), await session.post("third")) == (2, 3)
        assert (await session_status(session)).queued == 2
        hold.go.set()
        third = await session.result_of(3)
        assert [turn_summary(t) for t in await session.turns()] == [
            (1, "one", "completed"),
            (2, "two", "completed"),
            (3, "three", "completed"),
        ]
        assert (turn_summary(await first), turn_summary(third)) == ((1, "one", "completed"), (3, "three", "completed"))
        await close_session(session)


async def test_a_message_may_guide_the_current_turn(client: Client, hold: Hold) -> None:
    model = ScriptedModel([hold.step(answers("too early")), answers("as guided")])
    async with a_loop(client, model) as loop:
        session, first = await busy_session(loop, hold)
        assert await session.post("shorter, please", when_busy="steer") == 1
        hold.go.set()
        assert turn_summary(await first) == (1, "as guided", "completed")
        assert model.seen[-1].messages[-1].text == "[Guidance from the operator] shorter, please"
        await close_session(session)


async def test_a_message_may_interrupt_the_current_turn(client: Client, hold: Hold) -> None:
    """The interrupted call gets a result. The next turn continues the same conversation."""

    async def stand_still(_: dict[str, Any], __: ToolContext) -> str:
        return await hold.then("done")

    work = FakeTool("work", stand_still)
    model = ScriptedModel([calls("work"), answers("other"), answers("queued before")])
    async with a_loop(client, model, work) as loop:
        session, first = await busy_session(loop, hold)
        assert await session.post("waits") == 2
        third = await session.send("something else", when_busy="interrupt")
        cut, second = await first, await session.result_of(2)
        last = await close_session(session)
    assert (cut.termination.reason, cut.termination.detail, cut.output) == (
        "interrupted",
        "interrupted by a message",
        "",
    )
    assert (turn_summary(third), turn_summary(second)) == ((3, "other", "completed"), (2, "queued before", "completed"))
    seen = model.seen[1].messages
    assert [message.role for message in seen] == ["user", "assistant", "tool", "user"]
    assert next(each.data["reason"] for each in last.journal if each.event == "TurnEnded") == "interrupted"


async def test_a_message_may_be_refused_during_a_turn(client: Client, hold: Hold) -> None:
    async with a_loop(client, [hold.step(answers("one")), answers("two")]) as loop:
        session, first = await busy_session(loop, hold)
        with pytest.raises(SessionBusy, match="turn 1 is under way"):
            await session.send("second", when_busy="refuse")
        hold.go.set()
        await first
        assert turn_summary(await session.send("second", when_busy="refuse")) == (2, "two", "completed")
        await close_session(session)


async def test_invalid_and_surplus_messages_are_refused(client: Client, hold: Hold) -> None:
    async with a_loop(client, [hold.step(answers("one")), answers("more")]) as loop:
        session, first = await busy_session(loop, hold)
        for bad, reported in (("  ", "must not be empty"), ("x" * 50_001, "must not be longer than 50000 bytes")):
            with pytest.raises(Refused, match=reported):
                await session.post(bad)
        with pytest.raises(TurnUnknown, match="no message became turn 7"):
            await session.result_of(7)
        for number in range(20):
            await session.post(f"{number}")
        with pytest.raises(QueueFull, match="20 messages wait already"):
            await session.post("one more")
        await session.close()
        with pytest.raises(SessionClosed, match="takes no more messages"):
            await session.post("late")
        hold.go.set()
        assert turn_summary(await first) == (1, "one", "completed")
        last = await wait_for_session(session)
        assert (await session.result_of(21)).termination.detail == "the session ended before this turn began"
        with pytest.raises(RunEnded):
            await session.post("later")
    assert (last.result.turns, last.events.count("TurnStarted")) == (1, 1)


async def test_a_repeated_message_is_not_taken_twice(client: Client) -> None:
    model = ScriptedModel([answers("one"), answers("two")])
    async with a_loop(client, model) as loop:
        session = await begin(loop)
        first = await session.send("hello", message_id="m1")
        again = await session.send("hello", message_id="m1")
        other = await session.send("hello", message_id="m2")
        with pytest.raises(Refused, match="was sent with another text, which became turn 1"):
            await session.send("Delete it all.", message_id="m1")
        assert (turn_summary(first), again, turn_summary(other)) == (
            (1, "one", "completed"),
            first,
            (2, "two", "completed"),
        )
        await close_session(session)


async def test_the_error_for_an_untaken_message_gives_its_id_for_a_retry(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server lists a worker for a while after it has gone, so the message is sent."""
    async with a_loop(client, ScriptedModel([answers("one")])) as loop:
        session = await begin(loop)
        await session_status(session)
    with monkeypatch.context() as soon:
        soon.setattr("orga.client.runs.exchange.ANSWER_TIMEOUT", timedelta(seconds=1))
        soon.setattr("orga.client.runs.sessions._PATIENCE_S", 1.0)
        with pytest.raises(NotTakenYet) as untaken:
            await session.send("hello")
    given = untaken.value.message_id
    assert given
    assert f"or send it with message_id={given!r}: so it is taken once" in str(untaken.value)
    async with a_worker(loop):
        assert turn_summary(await session.send("hello", message_id=given)) == (1, "one", "completed")
        last = await close_session(session)
    assert last.result.turns == 1


async def test_a_cancelled_send_is_not_repeated(client: Client) -> None:
    """The SDK reports the cancellation of a send as if nobody had answered."""
    async with a_loop(client, ScriptedModel([answers("one")], repeats=True)) as loop:
        session = await begin(loop)
        await session_status(session)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await session.send("hello", message_id="m1")
    async with a_worker(loop):
        assert turn_summary(await session.send("hello", message_id="m1")) == (1, "one", "completed")
        last = await close_session(session)
    assert last.result.turns == 1


async def test_a_turn_that_fails_or_reaches_a_limit_leaves_the_session_usable(client: Client) -> None:
    model = ScriptedModel([*[calls("look")] * 4, *[answers("")] * 3, answers("fine")])
    async with a_loop(client, model, FakeTool("look")) as loop:
        session = await begin(loop, max_iterations=4)
        assert turn_summary(await session.send("look")) == (1, "", "max_iterations")
        assert turn_summary(await session.send("say nothing")) == (2, "", "error")
        assert turn_summary(await session.send("and now?")) == (3, "fine", "completed")
        last = await close_session(session)
    assert last.result.iterations == 8


async def test_an_interrupt_ends_the_turn_and_an_abort_the_session(client: Client, hold: Hold) -> None:
    later = Hold()
    async with a_loop(client, [hold.step(answers("one")), answers("two"), later.step(answers("three"))]) as loop:
        session, first = await busy_session(loop, hold)
        with pytest.raises(Refused, match="turn 2 is not under way, turn 1 is"):
            await session.interrupt("too late", turn=2)
        assert await session.interrupt("changed my mind", turn=1) == 1
        assert (await first).termination.detail == "changed my mind"
        assert turn_summary(await session.send("second")) == (2, "two", "completed")
        with pytest.raises(Refused, match="no turn is under way"):
            await session.interrupt()
        third = asyncio.create_task(session.send("third"))
        await later.reached()
        await session.abort("enough")
        assert (await third).termination.reason == "aborted"
        last = await wait_for_session(session)
    assert (last.result.termination.reason, last.result.termination.detail) == ("aborted", "enough")


async def test_signals_send_and_interrupt_as_the_updates_do(client: Client, hold: Hold) -> None:
    async with a_loop(client, [hold.step(answers("one")), answers("two")]) as loop:
        session = await begin(loop)
        run = client.get_workflow_handle(session.id)
        first = {"text": "first", "message_id": "m1", "by": "ada"}
        for message in (first, first, {**first, "text": "another"}, {"text": ""}, 7, None):
            await run.signal("send", message)
        await hold.reached()
        await run.signal("send", {"text": "second", "message_id": "m2"})
        await run.signal("interrupt", {"turn": 2})
        await run.signal("interrupt", {"why": "changed my mind", "turn": 1})
        turns = [await session.result_of(number) for number in (1, 2)]
        last = await close_session(session)
    assert [turn_summary(turn) for turn in turns] == [(1, "", "interrupted"), (2, "two", "completed")]
    assert turns[0].termination.detail == "changed my mind"
    refused = [entry.data["kind"] for entry in last.journal if entry.event == "InterventionRefused"]
    assert refused == ["send"] * 4 + ["interrupt"]


async def test_a_silent_session_ends_after_its_idle_timeout(client: Client) -> None:
    async with a_loop(client, [answers("one")]) as loop:
        session = await begin(loop, idle_timeout_s=5.0)
        assert turn_summary(await session.send("first")) == (1, "one", "completed")
        last = await wait_for_session(session)
    assert last.result.termination.detail == "no message came for 5 s"
    assert last.result.latest[0].output == "one"


async def test_guidance_between_turns_reaches_the_next_turn(client: Client) -> None:
    model = ScriptedModel([answers("one"), answers("two")])
    async with a_loop(client, model) as loop:
        session = await begin(loop)
        await session.send("first")
        await session.steer("be brief")
        await wait_for_status(session, lambda status: len(status.unread_interventions) == 1)
        await session.send("second")
        await close_session(session)
    assert [message.text for message in model.seen[-1].messages][-2:] == [
        "second",
        "[Guidance from the operator] be brief",
    ]


async def test_guidance_that_a_turn_did_not_read_precedes_the_next_message(client: Client, hold: Hold) -> None:
    async def stand_still(_: dict[str, Any], __: ToolContext) -> str:
        return await hold.then("done")

    model = ScriptedModel([calls("work"), answers("two")])
    async with a_loop(client, model, FakeTool("work", stand_still)) as loop:
        session = await begin(loop, max_iterations=1)
        first = asyncio.create_task(session.send("first"))
        await hold.reached()
        assert await session.post("be brief", when_busy="steer") == 1
        await session.steer("be kind", intervention_id="read")
        hold.go.set()
        assert turn_summary(await first) == (1, "", "max_iterations")
        assert (await session_status(session)).unread_interventions == []
        await session.send("second")
        await session.steer("be quick", intervention_id="unread")
        last = await close_session(session)
    assert [message.text for message in model.seen[-1].messages][2:] == [
        "done",
        "[Guidance from the operator] be brief",
        "[Guidance from the operator] be kind",
        "second",
    ]
    reported = [str(each.data) for each in last.journal if each.event == "InterventionReceived"]
    assert ["be brief" in reported[1], "be kind" in reported[2]] == [True, True]
    became = [each for each in last.journal if each.event in {"InterventionApplied", "InterventionRefused"}]
    assert [each.data for each in became] == [
        {"kind": "steer", "id": "read", "phase": "reasoning", "iteration": 2},
        {"kind": "steer", "id": "unread", "reason": "the run ended first"},
    ]
