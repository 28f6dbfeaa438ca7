"""A saga that is interrupted takes back what was done: an abort, the end of the time; a pause holds it."""

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from orga.testing import answers
from orga.workflows.types.recovery import Recovery
from orga.workflows.types.tools import ToolOptions
from tests.support.hold import Hold, until
from tests.support.runs.sagas import Ledger, an_agency, book, compensations, fails, look, pay, saga


async def test_an_abort_in_the_middle_takes_back_what_was_done(client: Client) -> None:
    """The call in flight may have had its effect, so its compensation is carried out, too."""
    hold = Hold()
    ledger = Ledger({"book car": lambda: hold.then("never")})
    async with an_agency(client, [saga(book("hotel"), book("car"), pay())], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "changed plans")
        ran = await loop.ended(handle)
        shown = await handle.query("conversation")

    assert ran.result.termination.reason == "aborted"
    assert ledger.done == ["book hotel", "cancel car", "cancel hotel"]
    assert shown[-1]["text"].startswith(
        "[Error] saga stopped at step 2 of 3 (book cancelled); what was done is taken back"
    )
    assert compensations(ran) == [("cancel", "ok"), ("cancel", "ok")]


async def test_the_end_of_the_time_takes_back_what_was_done(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"look prices": lambda: hold.then("never")})
    async with an_agency(client, [saga(book("hotel"), look(), pay())], *ledger.tools) as loop:
        ran = await loop.run(timeout_s=3)
    assert (ran.result.termination.reason, ledger.done) == ("timeout", ["book hotel", "cancel hotel"])


async def test_compensations_under_way_are_not_cut_off_by_an_abort(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"pay all": fails(), "cancel car": lambda: hold.then("cancelled at last")})
    async with an_agency(client, [saga(book("hotel"), book("car"), pay())], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort")
        await handle.query("status")  # it has seen the abort by then
        hold.go.set()
        ran = await loop.ended(handle)
    assert ledger.done == ["book hotel", "book car", "cancel hotel"]
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED not in [e.event_type for e in ran.history.events]
    assert compensations(ran) == [("cancel", "ok"), ("cancel", "ok")]


async def test_an_abort_behind_a_final_step_leaves_what_is_done(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"pay tip": lambda: hold.then("never")})
    async with an_agency(client, [saga(book("hotel"), pay(), pay("tip"))], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort")
        ran = await loop.ended(handle)
    assert (ledger.done, compensations(ran)) == (["book hotel", "pay all"], [])


async def test_a_pause_holds_before_the_next_step(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"look prices": lambda: hold.then("seen")})
    async with an_agency(client, [saga(look(), pay()), answers()], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("pause")

        async def is_paused() -> bool:
            return (await handle.query("status"))["paused"]

        await until(is_paused)
        hold.go.set()

        async def is_seen() -> bool:
            return not (await handle.describe()).raw_description.pending_activities

        await until(is_seen)
        assert ledger.done == []
        await handle.signal("resume")
        await loop.ended(handle)
    assert ledger.done == ["pay all"]


async def test_an_alternative_takes_back_what_a_compensation_cannot_after_an_abort(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"look prices": lambda: hold.then("never"), "cancel hotel": fails("cancel is down")})
    instead = ToolOptions(recovery=Recovery(strategy="fallback", max_attempts=1, alternatives=("refund",)))
    tools = [ledger.tool("look", "read_only"), ledger.tool("book"), ledger.tool("cancel", options=instead)]
    steps = [saga(book("hotel"), look()), answers()]
    async with an_agency(client, steps, *tools, ledger.tool("refund")) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)
    assert ledger.done == ["book hotel", "refund hotel"]
    assert compensations(ran) == [("cancel", "ok")]
