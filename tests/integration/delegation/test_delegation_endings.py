"""When a delegate or its parent ends, the other learns of it: aborts, time limits, failures, terminations."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError

from orga.activities.ports import ToolContext
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import PATIENCE_S, Hold, wait_for_event
from tests.support.runs.delegates import PAIR, a_cast, agent, children_of, delegates, result_of, run_lead, start_lead
from tests.support.runs.sagas import Ledger, book, pay, saga


async def test_an_abort_reaches_the_delegate_and_its_usage_is_kept(client: Client) -> None:
    hold = Hold()
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper")], "helper": [calls("look"), hold.step(answers())]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, _):
        handle = await start_lead(loop)
        await hold.reached()
        await handle.signal("abort", "too slow")
        await wait_for_event(hold.cancelled)
        ran = await loop.ended(handle)
        [child] = await children_of(client, ran)
        ended = await result_of(client, child)
        reported = (await ran.handle.query("conversation"))[-1]["text"]

    assert ran.result.termination.reason == "aborted"
    assert ended["termination"] == {"reason": "aborted", "detail": "the run that delegated is ending: too slow"}
    assert (ran.result.usage.model_calls, ran.result.tool_calls.delegated) == (2, 1)
    assert reported.startswith("[Error] agent 'helper' did not finish: aborted")


async def test_a_temporal_cancellation_aborts_the_delegate(client: Client) -> None:
    hold = Hold()
    async with a_cast(client, PAIR, {"lead": [delegates("helper")], "helper": [hold.step(answers())]}) as (loop, _):
        handle = await start_lead(loop)
        await hold.reached()
        await handle.cancel()
        await wait_for_event(hold.cancelled)
        ran = await loop.ended(handle)

    assert ran.result.termination.detail == "cancelled"
    assert [entry.data["reason"] for entry in ran.journal if entry.event == "DelegationEnded"] == ["aborted"]


async def test_a_delegate_that_does_not_end_within_the_grace_does_not_delay_the_abort(client: Client) -> None:
    """Its tool ignores the cancellation, so its own grace is as long as that of its parent."""
    hold, late = Hold(), Hold()

    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            return await hold.then("never")
        except asyncio.CancelledError:
            return await late.then("late")

    agents = PAIR | {"helper": agent("helper", tools=["slow"])}
    scripts = {"lead": [delegates("helper")], "helper": [calls("slow")]}
    async with a_cast(client, agents, scripts, FakeTool("slow", stubborn)) as (loop, _):
        handle = await start_lead(loop)
        await hold.reached()
        await handle.signal("abort")
        ran = await loop.ended(handle)
        late.go.set()

    assert ran.result.termination.reason == "aborted"


@pytest.mark.parametrize("by", ["abort", "terminate"])
async def test_the_saga_of_a_delegate_is_fully_compensated_after_the_end_of_its_parent(client: Client, by: str) -> None:
    booking, cancelling = Hold(), Hold()
    ledger = Ledger({"book car": lambda: booking.then("never"), "cancel car": lambda: cancelling.then("cancelled")})
    agents = PAIR | {"helper": agent("helper", tools=["look", "book", "cancel", "pay", "saga"])}
    scripts = {"lead": [delegates("helper")], "helper": [saga(book("hotel"), book("car"), pay()), answers()]}
    async with a_cast(client, agents, scripts, *ledger.tools) as (loop, _):
        handle = await start_lead(loop)
        await booking.reached()
        await (handle.signal("abort") if by == "abort" else handle.terminate("by hand"))
        await cancelling.reached()
        with suppress(WorkflowFailureError):
            await handle.result()
        cancelling.go.set()
        ended = await result_of(client, f"{handle.id}.1.0")

    assert ended["termination"]["reason"] == "aborted"
    assert ledger.done == ["book hotel", "cancel hotel"]
    assert len(ledger.keys["cancel car"]) == 1


async def test_the_time_limit_of_a_delegate_ends_it_before_its_parent(client: Client) -> None:
    hold = Hold()
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper"), answers("in time")], "helper": [calls("look"), hold.step(answers())]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, cast):
        ran = await run_lead(loop, timeout_s=12)  # a tenth of it is reserved for the parent

    assert ran.result.termination.reason == "completed"
    assert cast.messages_to("lead")[-1].startswith("[Error] agent 'helper' did not finish: timeout (limit of ")
    assert "it had no output. The outcome is unknown" in cast.messages_to("lead")[-1]


async def test_a_failing_delegate_is_reported_as_an_error(client: Client) -> None:
    """An agent that cannot be prepared fails its run, but the run of its parent continues."""

    def known(model: str) -> None:
        if model == "scripted:helper":
            raise ValueError("no such model")

    scripts = {"lead": [delegates("helper"), answers("alone")], "helper": [answers()]}
    async with a_cast(client, PAIR, scripts, check_model=known) as (loop, cast):
        ran = await run_lead(loop)

    assert ran.result.output == "alone"
    assert cast.messages_to("lead")[-1].startswith(
        "[Error] agent 'helper' ended without a result: InvalidInput: model: no such model."
    )
    assert ran.result.tool_calls.failed == 1
    assert ran.result.usage.model_calls == 2


async def test_a_terminated_delegate_is_reported_as_an_error(client: Client) -> None:
    hold = Hold()
    scripts = {"lead": [delegates("helper"), answers("alone")], "helper": [hold.step(answers())]}
    async with a_cast(client, PAIR, scripts) as (loop, cast):
        handle = await start_lead(loop)
        await hold.reached()
        await client.get_workflow_handle(f"{handle.id}.1.0").terminate(reason="by hand")
        ran = await loop.ended(handle)

    assert "[Error] agent 'helper' ended without a result: " in cast.messages_to("lead")[-1]
    nested = [entry for entry in ran.journal if entry.data.get("run") == f"{handle.id}.1.0"]
    assert (nested[-1].event, nested[-1].data["detail"]) == ("Terminated", "by hand")


async def test_a_run_does_not_wait_for_ever_for_a_delegate_without_a_worker(client: Client) -> None:
    """The tool of the delegate has no worker and practically no time limit."""
    nowhere = FakeTool("nowhere", options=ToolOptions(task_queue="nobody-polls-this", timeout_s=3_600))
    agents = PAIR | {"helper": agent("helper", tools=["nowhere"])}
    scripts = {"lead": [delegates("helper"), answers("gave up")], "helper": [calls("nowhere"), answers()]}
    async with a_cast(client, agents, scripts, nowhere) as (loop, _):
        async with asyncio.timeout(PATIENCE_S):
            ran = await run_lead(loop, timeout_s=5)

    assert ran.result.termination.reason in {"completed", "timeout"}
    assert ran.result.duration_s < PATIENCE_S
