"""A turn is interrupted while a call ignores that: the session waits for the call and records its true outcome."""

import pytest
from temporalio.client import Client

from orga.activities.calls import tools
from orga.activities.ports import ModelRequest, Tool, ToolError
from orga.client.proof.verify import verify
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply
from tests.support.hold import PATIENCE_S, wait_until
from tests.support.runs.loop import a_loop
from tests.support.runs.sessions import (
    EndedSession,
    begin,
    close_session,
    session_status,
    turn_summary,
    wait_for_session,
)
from tests.support.runs.stubborn import LIMIT_S, Hanging, Stubborn, cut_and_on, impatient, let_go

__all__ = ["impatient"]

pytestmark = pytest.mark.usefixtures("impatient")


async def cut(client: Client, tool: Tool, stubborn: Stubborn) -> tuple[ScriptedModel, EndedSession, list[bool]]:
    """Return the model, the session, and whether the call had ended when the second turn began."""
    had_ended = list[bool]()

    def other(_: ModelRequest) -> Reply:
        had_ended.append(stubborn.has_ended)
        return answers("other")

    model = ScriptedModel([calls("book"), other])
    async with a_loop(client, model, tool) as loop:
        session = await begin(loop)
        await cut_and_on(session, stubborn)
        last = await close_session(session)
        found = await verify(client, session.id, exported=last.journal)
        assert found.ok, [check for check in found.checks if not check.ok]
        return model, last, had_ended


def outcomes(last: EndedSession) -> list[str]:
    return [each["outcome"] for e in last.journal if e.event == "ObservationsCollected" for each in e.data["outcomes"]]


@pytest.mark.parametrize("where", ["awaited", "in_a_thread"])
async def test_the_next_turn_starts_after_the_call_ended_and_its_model_reads_the_result(
    client: Client, where: str
) -> None:
    stubborn = Stubborn()
    model, last, had_ended = await cut(client, getattr(stubborn, where)(), stubborn)
    assert had_ended == [True]
    assert [m.text for m in model.seen[-1].messages] == ["book it", "", "booked", "something else"]
    assert (outcomes(last), last.events.index("ObservationsCollected") < last.events.index("TurnEnded")) == (
        ["ok"],
        True,
    )
    assert (last.result.tool_calls.run, last.result.tool_calls.failed) == (1, 0)


async def test_a_call_that_fails_after_the_interrupt_is_reported_as_failed(client: Client) -> None:
    stubborn = Stubborn(ToolError("sold out", acted="no"))
    model, last, had_ended = await cut(client, stubborn.awaited(), stubborn)
    assert (had_ended, outcomes(last)) == ([True], ["failed"])
    assert model.seen[-1].messages[2].text == "[Error] ToolError: sold out"


async def test_a_call_that_never_ends_delays_the_next_turn_only_for_its_time_limit(client: Client) -> None:
    hanging = Hanging()
    model = ScriptedModel([calls("hang"), answers("other")])
    try:
        async with a_loop(client, model, hanging.tool()) as loop:
            session = await begin(loop, tool_timeout_s=LIMIT_S)
            await hanging.cut_and_on(session)
            last = await close_session(session)
    finally:
        hanging.let_go.set()
    assert outcomes(last) == ["cancelled"]
    assert "the outcome is unknown" in model.seen[-1].messages[2].text


async def test_an_abort_of_the_session_does_not_wait_for_such_a_call(client: Client) -> None:
    """A worker that is stopped does not wait for it either."""
    stubborn = Stubborn()
    with let_go(stubborn):
        async with a_loop(client, [calls("book")], stubborn.awaited()) as loop:
            session = await begin(loop, tool_timeout_s=2 * PATIENCE_S)
            await session.post("book it")
            await stubborn.reached()
            await session.interrupt()
            await session.abort("enough")
            last = await wait_for_session(session)
            assert not stubborn.has_ended
    assert (last.result.termination.reason, last.result.latest[0].termination.reason) == ("aborted", "interrupted")


async def test_guidance_replaces_an_answer_whose_turn_waits_for_a_late_lookup(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lookup missed its deadline and ignores that. The next turn must not begin while it runs."""
    monkeypatch.setattr(tools, "ENDING_S", PATIENCE_S)
    stubborn = Stubborn("the page")
    fetch = FakeTool("fetch_url", stubborn.awaited().call, parameters={"type": "object", "required": ["url"]})
    model = ScriptedModel([answers("too early"), answers("as guided"), answers("two")])
    async with a_loop(client, model, fetch) as loop:
        session = await begin(loop, pre_hydration={"timeout_s": 3})
        assert (await session.post("read https://a.io"), await session.post("second")) == (1, 2)

        async def is_answered() -> bool:
            return any(message.text == "too early" for message in await session.conversation())

        await stubborn.reached()
        await wait_until(is_answered)
        assert ((await session_status(session)).turn, await session.post("shorter", when_busy="steer")) == (1, 1)
        stubborn.cut.set()
        found = [turn_summary(await session.result_of(turn)) for turn in (1, 2)]
        await close_session(session)
    assert found == [(1, "as guided", "completed"), (2, "two", "completed")]
