"""A pause also holds when a person decides while the run is paused."""

from temporalio.client import Client

from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update, tool_results_in, wait_for_question, wait_until_still
from tests.support.runs.sagas import Ledger, an_agency, book, saga


async def test_a_saga_step_approved_during_a_pause_waits_for_the_resume(client: Client) -> None:
    ledger = Ledger()
    async with an_agency(client, [saga(book("flight")), answers()], *ledger.tools, engine=Asks(("book",))) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await handle.signal("pause")
        await send_update(handle, "approve", approval_argument(question))
        await handle.query("status")
        assert (list((await handle.describe()).raw_description.pending_activities), ledger.done) == ([], [])
        await handle.signal("resume")
        await loop.ended(handle)
    assert ledger.done == ["book flight"]


async def test_a_saga_step_approved_during_a_pause_is_judged_by_the_policy_at_the_resume(client: Client) -> None:
    ledger, engine = Ledger(), Asks(("book",))
    async with an_agency(client, [saga(book("flight")), answers()], *ledger.tools, engine=engine) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await handle.signal("pause")
        await send_update(handle, "approve", approval_argument(question))
        await handle.query("status")
        engine.version = "v2"
        await handle.signal("resume")
        await loop.ended(handle)
    assert (ledger.done, "book: not_run" in tool_results_in(loop)[0]) == ([], True)


async def test_no_model_call_follows_a_raised_budget_before_the_resume(client: Client) -> None:
    provider = ScriptedModel([calls("look"), answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        await wait_for_question(handle)
        await handle.signal("pause")
        await send_update(handle, "extend_budget", {"max_iterations": 5})
        await wait_until_still(handle)
        assert len(provider.seen) == 1
        await handle.signal("resume")
        await loop.ended(handle)
    assert len(provider.seen) == 2


async def test_no_tool_call_follows_a_raised_budget_before_the_resume(client: Client) -> None:
    look = FakeTool("look")
    async with a_loop(client, [calls("look"), calls("look"), answers()], look) as loop:
        handle = await loop.start(on_exhausted="ask", max_tool_calls=1)
        await wait_for_question(handle)
        await handle.signal("pause")
        await send_update(handle, "extend_budget", {"max_tool_calls": 5})
        await wait_until_still(handle)
        assert len(look.contexts) == 1
        await handle.signal("resume")
        await loop.ended(handle)
    assert len(look.contexts) == 2
