"""A run does not continue as new while a delegate compensates its saga: the next segment would miss its end."""

import asyncio
from typing import Any

from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.testing import FakeTool, answers, calls
from tests.support.hold import Hold, wait_until
from tests.support.runs.delegates import a_cast, agent, delegates, start_lead, status_of
from tests.support.runs.loop import WORKER_FACTS
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.runs.sagas import book, saga

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


async def test_the_reserved_budget_of_a_delegate_is_returned_even_if_it_ends_after_its_call(client: Client) -> None:
    """The call is given up at the deadline, five seconds after the abort. A person gives the run more time."""
    back, late = Hold(), Hold()

    async def booked(arguments: dict[str, Any], _: ToolContext) -> str:
        if arguments["what"] == "car":
            await asyncio.Event().wait()
        return "booked"

    tools = (
        FakeTool("book", booked, "idempotent"),
        FakeTool("cancel", lambda arguments, context: back.then("cancelled"), "idempotent"),
        FakeTool("look"),
    )
    agents = {
        "lead": agent("lead", "buyer", tools=("look",)),
        "buyer": agent("buyer", tools=("book", "cancel", "saga")),
    }
    lead = [delegates("buyer"), calls("look"), late.step(delegates("buyer")), answers("done")]
    scripts = {"lead": lead, "buyer": [saga(book("flight"), book("car")), answers("fine")]}
    async with a_cast(client, agents, scripts, *tools, setup=EACH_ITERATION) as (loop, cast):
        handle = await start_lead(loop, timeout_s=1, on_exhausted="ask")
        await wait_for_question(handle)
        await send_update(handle, "extend_budget", {"timeout_s": 50})
        await late.reached()
        back.go.set()

        async def is_returned() -> bool:
            return not (await status_of(handle)).children

        await wait_until(is_returned)
        late.go.set()
        ran = await loop.ended(handle)

    assert "fine" in cast.messages_to("lead")[-1]
    assert ran.result.usage.model_calls == 6
    assert (len(ran.histories), ran.result.output) == (2, "done")
