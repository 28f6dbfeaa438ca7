"""A turn is interrupted while a delegate's call ignores that: nothing of the turn acts within the next one."""

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from orga.activities.ports import ModelRequest, Tool
from orga.client.proof.verify import verify
from orga.client.runs.sessions import SessionHandle, start_session
from orga.testing import answers, calls
from orga.workflows.phases import delegation
from orga.workflows.types.messages import Reply
from tests.support.hold import PATIENCE_S, wait_until
from tests.support.runs.delegates import PAIR, Cast, a_cast, agent, delegates, result_of, start_lead
from tests.support.runs.loop import Loop, check_replay, histories_of
from tests.support.runs.sessions import EndedSession, close_session, wait_for_session
from tests.support.runs.stubborn import LIMIT_S, Hanging, Stubborn, cut_and_on, impatient, let_go

__all__ = ["impatient"]

pytestmark = pytest.mark.usefixtures("impatient")

AGENTS = PAIR | {"helper": agent("helper", tools=["book"], tool_timeout_s=2 * PATIENCE_S)}
OVER_ONE = PAIR | {"helper": agent("helper", "clerk"), "clerk": agent("clerk", tools=["book"])}


@pytest.fixture(autouse=True)
def impatient_with_delegates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make runs cancel a delegate soon if it does not end."""
    monkeypatch.setattr(delegation, "CANCEL_GRACE_S", 0.3)


async def with_lead(loop: Loop) -> SessionHandle:
    return await start_session(loop.client, agent="lead", task_queue=loop.task_queue)


async def descendants_replay(client: Client, session: SessionHandle, *places: str) -> None:
    for place in places:
        for history in await histories_of(client, f"{session.id}{place}"):
            await check_replay(history)


@pytest.mark.parametrize("where", ["awaited", "in_a_thread"])
@pytest.mark.parametrize(
    ("agents", "places"),
    [
        pytest.param(AGENTS, (".1.0",), id="a delegate"),
        pytest.param(OVER_ONE, (".1.0", ".1.0.1.0"), id="a delegate's delegate"),
    ],
)
async def test_the_next_turn_starts_after_the_call_has_ended(
    client: Client, where: str, agents: Any, places: tuple[str, ...]
) -> None:
    stubborn, had_ended = Stubborn(), list[bool]()

    def other(_: ModelRequest) -> Reply:
        had_ended.append(stubborn.has_ended)
        return answers("other")

    tool: Callable[[], Tool] = getattr(stubborn, where)
    scripts = {"lead": [delegates("helper"), other], "helper": [calls("book")], "clerk": [calls("book")]}
    if agents is OVER_ONE:
        scripts["helper"] = [delegates("clerk")]
    async with a_cast(client, agents, scripts, tool()) as (loop, cast):
        session = await with_lead(loop)
        await cut_and_on(session, stubborn)
        last = await close_session(session)
        found = await verify(client, session.id, exported=last.journal)
        await descendants_replay(client, session, *places)
    assert had_ended == [True]
    assert delegate_result(cast).startswith("[Error] agent 'helper' did not finish: aborted")
    assert "it may have taken effect" in delegate_result(cast)
    assert found.ok, [check for check in found.checks if not check.ok]
    assert ends_of_delegates(last) == ["aborted"]


def delegate_result(cast: Cast) -> str:
    return cast.messages_to("lead")[1]


def ends_of_delegates(last: EndedSession) -> list[str]:
    return [e.data["reason"] for e in last.journal if e.event == "DelegationEnded" and "run" not in e.data]


async def test_a_call_that_never_ends_delays_the_next_turn_only_for_its_time_limit(client: Client) -> None:
    hanging = Hanging()
    agents = PAIR | {"helper": agent("helper", tools=["hang"], tool_timeout_s=LIMIT_S)}
    scripts = {"lead": [delegates("helper"), answers("other")], "helper": [calls("hang")]}
    try:
        async with a_cast(client, agents, scripts, hanging.tool()) as (loop, cast):
            session = await with_lead(loop)
            await hanging.cut_and_on(session)
            last = await close_session(session)
            await descendants_replay(client, session, ".1.0")
    finally:
        hanging.let_go.set()
    assert ends_of_delegates(last) == ["aborted"]
    assert "it may have taken effect" in delegate_result(cast)


@pytest.mark.parametrize("is_cut_first", [True, False])
async def test_an_abort_of_the_session_does_not_wait_for_such_a_call(client: Client, is_cut_first: bool) -> None:
    """The delegate is cancelled, and does not wait either."""
    stubborn = Stubborn()
    scripts = {"lead": [delegates("helper")], "helper": [calls("book")]}
    with let_go(stubborn):
        async with a_cast(client, AGENTS, scripts, stubborn.awaited()) as (loop, _):
            session = await with_lead(loop)
            await session.post("book it")
            await stubborn.reached()
            if is_cut_first:
                await session.interrupt()
                await wait_until(lambda: has_received_abort(client, f"{session.id}.1.0"))
            await session.abort("enough")
            last = await wait_for_session(session)
            found = await result_of(client, f"{session.id}.1.0")
            await descendants_replay(client, session, ".1.0")
            assert not stubborn.has_ended
    assert (last.result.termination.reason, found["termination"]["reason"]) == ("aborted", "aborted")


async def has_received_abort(client: Client, run_id: str) -> bool:
    """Return whether the interruption has reached a delegate. Nothing else is sent to it before."""
    reported = {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
    }
    history = await client.get_workflow_handle(run_id).fetch_history()
    return any(event.event_type in reported for event in history.events)


async def test_a_delegate_of_a_plain_run_has_the_usual_grace(client: Client) -> None:
    """A plain run has no next turn in which its calls could act unnoticed."""
    stubborn = Stubborn()
    scripts = {"lead": [delegates("helper")], "helper": [calls("book")]}
    with let_go(stubborn):
        async with a_cast(client, AGENTS, scripts, stubborn.awaited()) as (loop, _):
            handle = await start_lead(loop)
            await stubborn.reached()
            await handle.signal("abort", "enough")
            ran = await loop.ended(handle)
            assert not stubborn.has_ended
    assert ran.result.termination.reason == "aborted"
