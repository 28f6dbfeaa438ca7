"""Guidance and pauses reach a run and its delegate."""

import asyncio
from typing import Any

from temporalio.client import Client, WorkflowHandle

from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.client.testing.script import USAGE
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply, ToolCall
from tests.support.hold import Hold, wait_until
from tests.support.runs.delegates import (
    PAIR,
    a_cast,
    agent,
    children_of,
    delegates,
    start_lead,
    status_of,
    untrusted_text,
)
from tests.support.runs.waits import wait_until_known, wait_until_paused


async def test_guidance_reaches_the_working_delegate_and_later_its_parent(client: Client) -> None:
    hold = Hold()
    scripts = {
        "lead": [delegates("helper"), answers("as you wish")],
        "helper": [hold.step(answers("first")), answers("second")],
    }
    async with a_cast(client, PAIR, scripts) as (loop, cast):
        handle = await start_lead(loop)
        await hold.reached()
        for number in range(3):
            await handle.signal("steer", f"steer {number}")
        await handle.signal("add_context", "a fact")
        child = client.get_workflow_handle(f"{handle.id}.1.0")
        await wait_until(lambda: _has_unread(child, 4))
        hold.go.set()
        ran = await loop.ended(handle)
        await children_of(client, ran)

    guidance = [f"[Guidance from the operator] steer {number}" for number in range(3)]
    expected = [*guidance, "[Context from the operator]\na fact"]
    assert cast.messages_to("helper") == ["first", *expected]
    assert cast.messages_to("lead")[-4:] == expected
    assert untrusted_text(cast.messages_to("lead")[-5]) == "second"


async def _has_unread(handle: WorkflowHandle[Any, Any], count: int) -> bool:
    return len((await status_of(handle)).unread_interventions) == count


async def _is_paused(handle: WorkflowHandle[Any, Any], paused: bool = True) -> bool:
    return (await status_of(handle)).paused is paused


async def test_a_pause_also_stops_the_delegate_until_the_resume(client: Client) -> None:
    hold = Hold()
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper"), answers()], "helper": [hold.step(calls("look")), answers("done")]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, cast):
        handle = await start_lead(loop)
        await hold.reached()
        child = client.get_workflow_handle(f"{handle.id}.1.0")
        status = await status_of(handle)
        assert [(c.agent, c.task, c.workflow_id) for c in status.children] == [("helper", "do it", child.id)]
        await handle.signal("pause")
        await wait_until(lambda: _is_paused(child))
        hold.go.set()
        await wait_until_paused(child)
        assert len(cast.seen("helper")) == 1
        await handle.signal("resume")
        ran = await loop.ended(handle)
        await children_of(client, ran)

    assert untrusted_text(cast.messages_to("lead")[-1]) == "done"


async def test_a_delegate_started_while_its_parent_is_paused_is_paused(client: Client) -> None:
    """The parent is paused while the delegate waits for its turn."""
    hold = Hold()
    slow = FakeTool("slow", lambda arguments, context: hold.then("slow"))
    both = Reply.of(
        calls=(ToolCall(call_id="s", name="slow"), *delegates("helper").calls), finish="tool_calls", usage=USAGE
    )
    agents = PAIR | {"lead": agent("lead", "helper", tools=["slow"])}
    async with a_cast(client, agents, {"lead": [both, answers()], "helper": [answers("late")]}, slow) as (loop, cast):
        handle = await start_lead(loop, max_concurrent_tools=1)
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        child = client.get_workflow_handle(f"{handle.id}.1.1")
        await wait_until_known(child)
        await wait_until(lambda: _is_paused(child))
        await handle.signal("resume")
        await loop.ended(handle)

    assert untrusted_text(cast.messages_to("lead")[-1]) == "late"


async def test_the_journal_shows_the_outcome_of_interventions_with_an_id(client: Client) -> None:
    """This holds for the parent and its delegate. A second intervention with the same id is not passed on either."""
    hold = Hold()
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper"), answers()], "helper": [hold.step(calls("look")), answers("done")]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, cast):
        handle = await start_lead(loop)
        await hold.reached()
        lead, child = AgentHandle(client, handle.id), client.get_workflow_handle(f"{handle.id}.1.0")
        await lead.pause(by="bob", intervention_id="p")
        for _ in range(3):
            await lead.steer("hurry", by="ada", intervention_id="s")
        await lead.steer("slowly")
        await wait_until(lambda: _is_paused(child))
        await wait_until(lambda: _has_unread(child, 2))
        hold.go.set()
        await wait_until_paused(child)
        await lead.resume(by="ada", intervention_id="r")
        await lead.resume(intervention_id="late")
        ran = await loop.ended(handle)
        await children_of(client, ran)
        below = [entry async for entry in read_journal(client, child.id)]

    found = [(entry.event, entry.data) for entry in ran.journal if "Intervention" in entry.event and not entry.run]
    received = [data for event, data in found if event == "InterventionReceived"]
    hurry = {"kind": "steer", "text": "hurry", "id": "s", "by": "ada"}
    assert [data for data in received if data["kind"] == "steer"] == [hurry] * 3 + [{"kind": "steer", "text": "slowly"}]
    assert {"kind": "pause", "id": "p", "by": "bob"} in received
    assert [(event, data["id"]) for event, data in found if event != "InterventionReceived"] == [
        (
            "InterventionApplied",
            "p",
        ),  # at the resume, because the parent reaches no checkpoint while it waits for its delegate
        ("InterventionApplied", "r"),
        ("InterventionRefused", "late"),
        ("InterventionApplied", "s"),
    ]
    expected = [f"[Guidance from the operator] {text}" for text in ("hurry", "slowly")]
    assert cast.messages_to("lead")[-2:] == expected
    assert [text for text in cast.messages_to("helper") if text in expected] == expected
    assert [entry.data for entry in below if entry.event == "InterventionApplied"] == [
        {"kind": "steer", "id": "s", "by": "ada", "phase": "reasoning", "iteration": 2}
    ]


async def test_guidance_too_late_for_the_delegate_is_still_read_by_the_parent(client: Client) -> None:
    """The delegate has ended when the guidance arrives. The parent does not answer before all has arrived."""
    hold, reported = Hold(), Hold()
    scripts = {
        "lead": [delegates("helper"), reported.step(answers("first")), answers("both")],
        "helper": [hold.step(answers("mine"))],
    }
    async with a_cast(client, PAIR, scripts) as (loop, cast):
        handle = await start_lead(loop)
        await hold.reached()
        child = client.get_workflow_handle(f"{handle.id}.1.0")
        await asyncio.gather(child.terminate(), *(handle.signal("steer", f"{number}") for number in range(20)))
        reported.go.set()
        ran = await loop.ended(handle)

    assert ran.result.output in {"first", "both"}
    guidance = [text for text in cast.messages_to("lead") if text.startswith("[Guidance from the operator] ")]
    assert sorted(text.split()[-1] for text in guidance) == sorted(map(str, range(20)))
