"""Search attributes of a run that waits for a person show the wait and the current phase."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.activities.ports import ToolError
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.names import ITERATION, LOOP_VERSION, PHASE, WAITING
from tests.support.hold import Hold, wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import WORKER_FACTS, Ran, a_loop
from tests.support.runs.questions import send_update, wait_for_question

KNOWN = WORKER_FACTS.model_copy(update={"search_attributes": True})


def failing(arguments: dict[str, Any], context: object) -> str:
    raise ToolError("no")


async def shown(handle: WorkflowHandle[Any, Any]) -> tuple[str | None, str | None, int | None]:
    found = (await handle.describe()).typed_search_attributes
    return found.get(WAITING), found.get(PHASE), found.get(ITERATION)


async def shows(handle: WorkflowHandle[Any, Any], *expected: object) -> None:
    async def is_shown() -> bool:
        return await shown(handle) == expected

    await wait_until(is_shown)


async def test_a_live_run_shows_its_progress_from_its_first_calls_on(client: Client) -> None:
    """It must not show it only from the tenth iteration or at the end."""
    await register_missing(client)
    hold, today = Hold(), KNOWN.model_copy(update={"loop_version": LOOP_VERSION})
    async with a_loop(client, [calls("look"), hold.step(answers())], FakeTool("look"), setup=today) as loop:
        handle = await loop.start()
        await hold.reached()
        await shows(handle, None, "acting", 1)
        hold.go.set()
        ran = await loop.ended(handle)
        at_once = await loop.run("answer")
    assert await shown(ran.handle) == (None, "done", 2)
    assert upserts(ran) - upserts(at_once) == 1


def upserts(ran: Ran) -> int:
    """Return how many events update the shown progress."""
    return sum(event.HasField("upsert_workflow_search_attributes_event_attributes") for event in ran.history.events)


async def test_a_held_call_is_shown_as_waiting(client: Client) -> None:
    await register_missing(client)
    steps = [calls("look"), calls("look"), calls("pay"), answers()]
    async with a_loop(client, steps, FakeTool("look"), FakeTool("pay"), engine=Asks(), setup=KNOWN) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await shows(handle, "approval", "waiting", 3)
        await send_update(handle, "approve", approval_argument(question))
        ran = await loop.ended(handle)
    assert await shown(ran.handle) == (None, "done", 4)


@pytest.mark.parametrize(
    ("config", "kind", "choice"),
    [
        pytest.param({"on_exhausted": "ask", "max_iterations": 2}, "budget", "skip", id="a budget"),
        pytest.param({"step_iteration": {"on_limit_reached": "escalate"}}, "escalation", "skip", id="a step"),
    ],
)
async def test_a_question_is_shown_as_waiting(client: Client, config: dict[str, Any], kind: str, choice: str) -> None:
    await register_missing(client)
    once: dict[str, Any] = {"recovery": {"strategy": "retry", "max_attempts": 1}}
    async with a_loop(client, [calls("look")] * 2 + [answers()], FakeTool("look", failing), setup=KNOWN) as loop:
        handle = await loop.start(**once, **config)
        wait = await wait_for_question(handle)
        await shows(handle, kind, "waiting", 2)
        decision = {"escalation_id": wait["wait_id"], "choice": choice}
        await send_update(handle, "resolve_escalation", decision)
        ran = await loop.ended(handle)
    assert (await shown(ran.handle))[:2] == (None, "done")


async def test_a_call_that_a_person_decides_about_is_shown_as_waiting(client: Client) -> None:
    """The phase is acting, because other calls of the reply may be in flight."""
    await register_missing(client)
    steps = [calls("see"), calls("look"), answers()]
    recovery = {"strategy": "escalate", "max_attempts": 1}
    async with a_loop(client, steps, FakeTool("look", failing), FakeTool("see"), setup=KNOWN) as loop:
        handle = await loop.start(recovery=recovery)
        wait = await wait_for_question(handle)
        await shows(handle, "escalation", (await handle.query("status"))["phase"], 2)
        await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": "skip"})
        await loop.ended(handle)
