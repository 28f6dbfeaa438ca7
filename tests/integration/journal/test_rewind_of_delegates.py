"""A rewind leaves no delegate at work: each is aborted, and compensates its steps before the run continues."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from orga.activities.ports import ToolContext
from orga.client.errors import NoAnswer, OrgaError
from orga.client.past import dropped
from orga.client.past.rewind import plan_rewind, rewind
from orga.testing import FakeTool, answers, calls
from tests.support.hold import Hold
from tests.support.runs.delegates import a_cast, agent, delegates, result_of, start_lead, status_of
from tests.support.runs.rewound import wait_for_rewound
from tests.support.runs.sagas import book, saga

AGENTS = {"lead": agent("lead", "helper"), "helper": agent("helper", tools=["pay"])}
BUYER = agent("buyer", tools=("book", "cancel", "saga"))
BOOKS = saga(book("flight"), book("hotel"), book("car"))
BOOKED = ["book flight", "book hotel"]
TAKEN_BACK = ["cancel car", "cancel hotel", "cancel flight"]
"""The car may have been booked when the call was cancelled."""


class Agency:
    """Tools that book and cancel. The car blocks until it is cancelled, a cancellation until it is released."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.car, self.back = Hold(), Hold()

    @property
    def tools(self) -> tuple[FakeTool, ...]:
        return FakeTool("book", self._book, "idempotent"), FakeTool("cancel", self._cancel, "idempotent")

    async def _book(self, arguments: dict[str, Any], _: ToolContext) -> str:
        if arguments["what"] == "car":
            await self.car.then(None)
        self.done.append(f"book {arguments['what']}")
        return "booked"

    async def _cancel(self, arguments: dict[str, Any], _: ToolContext) -> str:
        await self.back.then(None)
        self.done.append(f"cancel {arguments['what']}")
        return "cancelled"


async def test_a_delegate_of_a_rewound_iteration_does_nothing_more(client: Client) -> None:
    hold, pay = Hold(), FakeTool("pay", effect="irreversible")
    scripts = {"lead": [delegates("helper"), answers("without")], "helper": [hold.step(calls("pay")), answers("late")]}
    async with a_cast(client, AGENTS, scripts, pay) as (loop, _):
        handle = await start_lead(loop)
        await hold.reached()
        child = client.get_workflow_handle(f"{handle.id}.1.0")
        plan = await plan_rewind(client, handle.id, 0)
        run = await rewind(client, handle.id, 0)
        left = await child.describe()
        ran = await wait_for_rewound(client, run)

    assert [(each.workflow_id, each.iteration) for each in plan.delegates] == [(f"{handle.id}.1.0", 1)]
    assert left.status == WorkflowExecutionStatus.COMPLETED
    assert (await child.result())["termination"]["reason"] == "aborted"
    assert ran.result.output == "without"
    assert pay.contexts == []


async def test_a_repeated_delegation_starts_after_the_old_saga_was_compensated(client: Client) -> None:
    agency = Agency()
    agents = {"lead": agent("lead", "buyer"), "buyer": BUYER}
    scripts = {"lead": [delegates("buyer"), delegates("buyer"), answers("done")], "buyer": [BOOKS, answers("nothing")]}
    async with a_cast(client, agents, scripts, *agency.tools) as (loop, cast):
        handle = await start_lead(loop)
        await agency.car.reached()
        rewinding = asyncio.create_task(rewind(client, handle.id, 0))
        await agency.back.reached()
        assert len(cast.seen("lead")) == 1
        agency.back.go.set()
        ran = await wait_for_rewound(client, await rewinding)

    assert agency.done == [*BOOKED, *TAKEN_BACK]
    assert (ran.result.output, len(cast.seen("buyer"))) == ("done", 2)


async def test_the_rewind_ends_a_live_delegate_of_an_ended_delegate(client: Client) -> None:
    agency = Agency()
    agents = {"lead": agent("lead", "middle"), "middle": agent("middle", "buyer"), "buyer": BUYER}
    again = [delegates("buyer"), delegates("buyer"), answers("done")]
    scripts = {"lead": [delegates("middle"), delegates("middle"), answers("done")], "middle": again}
    async with a_cast(client, agents, {**scripts, "buyer": [BOOKS, answers("nothing")]}, *agency.tools) as (loop, cast):
        handle = await start_lead(loop)
        await agency.car.reached()
        rewinding = asyncio.create_task(rewind(client, handle.id, 0))
        assert (await result_of(client, f"{handle.id}.1.0"))["termination"]["reason"] == "aborted"
        assert [each.workflow_id for each in (await plan_rewind(client, handle.id, 0)).delegates] == [
            f"{handle.id}.1.0.1.0"
        ]
        agency.back.go.set()
        ran = await wait_for_rewound(client, await rewinding)

    assert agency.done == [*BOOKED, *TAKEN_BACK]
    assert (ran.result.output, len(cast.seen("buyer"))) == ("done", 2)


async def test_the_rewind_ends_a_delegate_that_outlives_its_parent(client: Client) -> None:
    agency = Agency()
    agents = {"lead": agent("lead", "buyer"), "buyer": BUYER}
    scripts = {"lead": [delegates("buyer"), delegates("buyer"), answers("done")], "buyer": [BOOKS, answers("nothing")]}
    async with a_cast(client, agents, scripts, *agency.tools) as (loop, _):
        handle = await start_lead(loop)
        await agency.car.reached()
        await handle.signal("abort", "enough")
        await loop.ended(handle)
        rewinding = asyncio.create_task(rewind(client, handle.id, 0))
        agency.back.go.set()
        ran = await wait_for_rewound(client, await rewinding)

    assert (ran.result.output, agency.done) == ("done", [*BOOKED, *TAKEN_BACK])


async def test_nothing_is_rewound_while_a_delegate_has_not_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run continues unchanged, with the result of its delegate."""
    monkeypatch.setattr(dropped, "GRACE_S", 0.5)
    agency = Agency()
    agents = {"lead": agent("lead", "buyer"), "buyer": BUYER}
    scripts = {"lead": [delegates("buyer"), answers("done")], "buyer": [BOOKS]}
    async with a_cast(client, agents, scripts, *agency.tools) as (loop, cast):
        handle = await start_lead(loop)
        await agency.car.reached()
        with pytest.raises(OrgaError, match=rf"has not ended 0\.5 s after its abort: {handle.id}\.1\.0"):
            await rewind(client, handle.id, 0)
        assert (await status_of(handle)).iteration == 1
        agency.back.go.set()
        ran = await loop.ended(handle)

    assert (ran.result.output, ran.result.iterations) == ("done", 2)
    assert agency.done[2:] == TAKEN_BACK
    assert "aborted" in cast.messages_to("lead")[-1]


async def test_nothing_is_rewound_if_no_worker_can_abort_a_delegate(client: Client) -> None:
    hold = Hold()
    scripts = {"lead": [delegates("helper"), answers("done")], "helper": [hold.step(answers()), answers()]}
    async with a_cast(client, AGENTS, scripts, FakeTool("pay")) as (loop, _):
        handle = await start_lead(loop)
        await hold.reached()
        before = await handle.describe()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orga.client.runs.exchange.may_be_served", _nobody)
        with pytest.raises(NoAnswer):
            await rewind(client, handle.id, 0)
    assert (await handle.describe()).run_id == before.run_id
    await handle.terminate()


async def _nobody(*_: Any) -> bool:
    return False
