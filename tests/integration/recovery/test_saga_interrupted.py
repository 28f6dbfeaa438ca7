"""An interrupted saga compensates its finished steps, on an abort and at the time limit. A pause stops it."""

import threading
from collections.abc import Generator

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus

from orga import tool
from orga.activities.adapters.tools.python_function import PythonFunction
from orga.activities.ports import Tool
from orga.testing import answers
from orga.workflows.phases import act
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import PATIENCE_S, Hold, wait_until
from tests.support.runs.questions import tool_results_in
from tests.support.runs.sagas import Ledger, an_agency, book, compensations, fails, look, pay, saga
from tests.support.runs.stubborn import impatient

__all__ = ["impatient"]


async def test_an_abort_compensates_the_finished_steps(client: Client) -> None:
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


async def test_the_time_limit_compensates_the_finished_steps(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"look prices": lambda: hold.then("never")})
    async with an_agency(client, [saga(book("hotel"), look(), pay())], *ledger.tools) as loop:
        ran = await loop.run(timeout_s=3)
    assert (ran.result.termination.reason, ledger.done) == ("timeout", ["book hotel", "cancel hotel"])


async def test_an_abort_does_not_interrupt_running_compensations(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"pay all": fails(), "cancel car": lambda: hold.then("cancelled at last")})
    async with an_agency(client, [saga(book("hotel"), book("car"), pay())], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort")
        await handle.query("status")  # the abort has arrived by now
        hold.go.set()
        ran = await loop.ended(handle)
    assert ledger.done == ["book hotel", "book car", "cancel hotel"]
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED not in [e.event_type for e in ran.history.events]
    assert compensations(ran) == [("cancel", "ok"), ("cancel", "ok")]


async def test_an_abort_after_a_final_step_keeps_the_effects(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"pay tip": lambda: hold.then("never")})
    async with an_agency(client, [saga(book("hotel"), pay(), pay("tip"))], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort")
        ran = await loop.ended(handle)
    assert (ledger.done, compensations(ran)) == (["book hotel", "pay all"], [])


async def test_a_pause_stops_before_the_next_step(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"look prices": lambda: hold.then("seen")})
    async with an_agency(client, [saga(look(), pay()), answers()], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("pause")

        async def is_paused() -> bool:
            return (await handle.query("status"))["paused"]

        await wait_until(is_paused)
        hold.go.set()

        async def is_seen() -> bool:
            return not (await handle.describe()).raw_description.pending_activities

        await wait_until(is_seen)
        assert ledger.done == []
        await handle.signal("resume")
        await loop.ended(handle)
    assert ledger.done == ["pay all"]


async def test_after_an_abort_an_alternative_replaces_a_failed_compensation(client: Client) -> None:
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


class Thread:
    """A tool whose thread books only when it is released, even after its call has ended."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.entered, self.let_go = ledger, threading.Event(), threading.Event()

    def tool(self) -> Tool:
        @tool(effect="irreversible")
        def book(what: str) -> str:
            """Book it."""
            self.entered.set()
            self.let_go.wait(10 * PATIENCE_S)
            self._ledger.done.append(f"book {what}")
            return "booked"

        return PythonFunction(book)

    async def reached(self) -> None:
        async def is_entered() -> bool:
            return self.entered.is_set()

        await wait_until(is_entered)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def thread(ledger: Ledger) -> Generator[Thread]:
    thread = Thread(ledger)
    yield thread
    thread.let_go.set()


@pytest.mark.usefixtures("impatient")
async def test_an_effect_of_a_late_thread_is_compensated_after_the_thread_has_ended(
    client: Client, ledger: Ledger, thread: Thread
) -> None:
    """A thread cannot be stopped. Its booking would come after the compensation, and stay."""
    async with an_agency(client, [saga(book("car"), book("hotel"))], thread.tool(), ledger.tool("cancel")) as loop:
        handle = await loop.start()
        await thread.reached()
        await handle.signal("abort")

        async def waits_or_is_over() -> bool:
            timers = [e.timer_started_event_attributes async for e in handle.fetch_history_events()]
            waits = act.UNDO_GRACE_S in [timer.start_to_fire_timeout.ToSeconds() for timer in timers]
            return waits or (await handle.describe()).status != WorkflowExecutionStatus.RUNNING

        await wait_until(waits_or_is_over)
        thread.let_go.set()
        ran = await loop.ended(handle)
        shown = await handle.query("conversation")

    assert ledger.done == ["book car", "cancel car"]
    assert shown[-1]["text"].startswith("[Error] saga stopped before step 2 of 2")
    assert compensations(ran) == [("cancel", "ok")]


@pytest.mark.usefixtures("impatient")
async def test_an_effect_of_a_thread_that_never_ends_is_not_reported_as_compensated(
    client: Client, ledger: Ledger, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act, "UNDO_GRACE_S", 5.0)
    async with an_agency(client, [saga(book("car"))], thread.tool(), ledger.tool("cancel")) as loop:
        handle = await loop.start()
        await thread.reached()
        await handle.signal("abort")
        await loop.ended(handle)
        shown = await handle.query("conversation")
    assert ledger.done == ["cancel car"]
    assert "(book cancelled); NOT surely taken back: step 1, which may still act" in shown[-1]["text"]


async def test_an_effect_of_a_thread_past_its_time_limit_is_not_reported_as_compensated(
    client: Client, ledger: Ledger, thread: Thread
) -> None:
    steps = [saga(book("car")), answers()]
    async with an_agency(client, steps, thread.tool(), ledger.tool("cancel")) as loop:
        await loop.run(tool_timeout_s=1)
    assert ledger.done == ["cancel car"]
    assert "(book failed); NOT surely taken back: step 1, which may still act; see to it" in tool_results_in(loop)[0]
