"""The control core under a workflow that is not an agent: people can do to it all that they can do to a run."""

import ast
import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.worker import Worker

from orga.client.runners.workflows import our_runner
from orga.client.server.search_attributes import register_missing
from orga.workflows.types.control import NOTES_MEMO
from orga.workflows.types.names import NOTIFY, PHASE, TERMINATION, WAITING
from tests.support.hold import wait_until
from tests.support.runs.errand import ErrandsWorkflow

ROOT = Path(__file__).parents[3]


class Outside:
    """People who are notified of runs while they are reachable."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.opens = asyncio.Event()
        self.opens.set()

    @activity.defn(name=NOTIFY)
    async def deliver(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        await self.opens.wait()


@asynccontextmanager
async def errands(client: Client, cached: int = 100) -> AsyncGenerator[tuple[str, Outside]]:
    """Run a worker, and yield its queue and the people who are notified."""
    queue, outside = str(uuid4()), Outside()
    async with Worker(
        client,
        task_queue=queue,
        workflows=[ErrandsWorkflow],
        activities=[outside.deliver],
        workflow_runner=our_runner(),
        max_cached_workflows=cached,
    ):
        yield queue, outside


async def start(client: Client, queue: str, *todo: str, **given: Any) -> WorkflowHandle[Any, Any]:
    await register_missing(client)
    return await client.start_workflow(
        "Errands", {"todo": todo, **given}, id=f"errands-{uuid4()}", task_queue=queue, run_timeout=timedelta(minutes=1)
    )


async def status_of(handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    return await handle.query("stands")


async def comes_to(handle: WorkflowHandle[Any, Any], phase: str) -> dict[str, Any]:
    """Wait until the run is in this phase, and the server lists it so."""

    async def is_there() -> bool:
        attributes = (await handle.describe()).typed_search_attributes
        return (await status_of(handle))["phase"] == phase == attributes.get(PHASE)

    await wait_until(is_there)
    return await status_of(handle)


async def update(handle: WorkflowHandle[Any, Any], name: str, **argument: Any) -> Any:
    return await handle.execute_update(name, argument)  # pyright: ignore[reportUnknownMemberType]


async def notes(handle: WorkflowHandle[Any, Any]) -> list[tuple[str, str]]:
    """Return event and kind of each note in the history, in order."""
    found = list[tuple[str, str]]()
    async for event in handle.fetch_history_events():
        memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if NOTES_MEMO in memo:
            [written] = await handle._client.data_converter.decode([memo[NOTES_MEMO]])
            found += [(note["event"], note["data"].get("kind") or note["data"].get("errand", "")) for note in written]
    return found


@pytest.mark.parametrize("cached", [100, 0], ids=["cached", "replayed for each task"])
async def test_an_approval_is_shown_everywhere_and_counts(client: Client, cached: int) -> None:
    async with errands(client, cached) as (queue, outside):
        handle = await start(client, queue, "walk", "buy milk", "rest", notify=True)
        [question] = (await comes_to(handle, "waiting"))["waiting"]
        assert (question["kind"], question["question"]) == ("approval", "buy milk")
        [call] = question["data"]["calls"]
        assert (call["tool"], call["arguments"]) == ("buy", '{"what":"buy milk"}')
        assert (await handle.describe()).typed_search_attributes.get(WAITING) == "approval"
        with pytest.raises(WorkflowUpdateFailedError):
            await update(handle, "resolve_escalation", escalation_id=question["wait_id"], choice="skip")
        await update(handle, "approve", approval_id=call["id"], approver="ada")
        result = await handle.result()
    assert result["done"] == ["walk: done", "buy milk: bought", "rest: done"]
    assert [(message["event"], message["agent"]) for message in outside.messages] == [
        ("waiting", "errands"),
        ("ended", "errands"),
    ]
    assert f"orga approve {handle.id} {call['id']}" in outside.messages[0]["commands"]
    attributes = (await handle.describe()).typed_search_attributes
    assert (attributes.get(PHASE), attributes.get(WAITING), attributes.get(TERMINATION)) == ("done", None, "completed")
    assert await notes(handle) == [
        ("ErrandRun", "walk"),
        ("ApprovalRequested", "approval"),
        ("ApprovalRequested", "call"),
        ("ApprovalResolved", "call"),
        ("ApprovalResolved", "approval"),
        ("ErrandRun", "buy milk"),
        ("ErrandRun", "rest"),
    ]


async def test_an_undecided_approval_expires_and_a_denial_is_reported(client: Client) -> None:
    async with errands(client) as (queue, _):
        late = await start(client, queue, "buy milk", expires_s=0.3)
        refused = await start(client, queue, "buy milk")
        await comes_to(refused, "waiting")
        await update(refused, "deny", approval_id="yes-0", approver="ada", reason="too dear")
        assert (await refused.result())["done"] == ["buy milk: not bought, too dear"]
        assert (await late.result())["done"] == ["buy milk: not bought, nobody approved it in time"]


async def test_a_question_has_choices_and_the_first_valid_answer_counts(client: Client) -> None:
    async with errands(client) as (queue, _):
        handle = await start(client, queue, "ask the way", "walk")
        [question] = (await comes_to(handle, "waiting"))["waiting"]
        assert question["choices"] == ["retry", "skip"]
        for wrong in ("abort", "result", "go"):
            with pytest.raises(WorkflowUpdateFailedError):
                await update(handle, "resolve_escalation", escalation_id="ask-0", choice=wrong)
        await update(handle, "resolve_escalation", escalation_id="ask-0", choice="retry")
        assert (await handle.result())["done"] == ["ask the way: retry", "walk: done"]


async def test_the_run_is_paused_guided_and_resumed(client: Client) -> None:
    async with errands(client) as (queue, _):
        handle = await start(client, queue, *["walk"] * 5)
        await handle.signal("pause")
        await comes_to(handle, "paused")
        await handle.signal("steer", "slowly")
        await handle.signal("no such signal", "x")
        await handle.signal("resume")
        result = await handle.result()
    assert (len(result["done"]), result["heard"]) == (5, ["slowly"])


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_an_end_closes_the_open_question(client: Client, how: str) -> None:
    async with errands(client) as (queue, _):
        handle = await start(client, queue, "buy milk", "walk")
        await comes_to(handle, "waiting")
        await (handle.signal("abort", "enough") if how == "abort" else handle.cancel())
        result = await handle.result()
    assert result["stop"] == ["aborted", "enough" if how == "abort" else "cancelled"]
    attributes = (await handle.describe()).typed_search_attributes
    assert (attributes.get(PHASE), attributes.get(WAITING)) == ("done", None)
    assert (await notes(handle))[-1] == ("ApprovalResolved", "approval")


async def test_the_deadline_ends_the_run_and_waits_for_people_use_no_time(client: Client) -> None:
    async with errands(client) as (queue, _):
        handle = await start(client, queue, "buy milk", *["walk"] * 100, seconds=1)
        await comes_to(handle, "waiting")
        await asyncio.sleep(1.5)
        assert (await status_of(handle))["phase"] == "waiting"
        await update(handle, "approve", approval_id="yes-0", approver="ada")
        result = await handle.result()
    assert result["stop"] == ["timeout", "limit of 1 s"]
    assert "buy milk: bought" in result["done"]
    assert result["elapsed_s"] >= 1


async def test_a_question_stays_open_across_continue_as_new(client: Client) -> None:
    async with errands(client) as (queue, _):
        handle = await start(client, queue, "walk", "buy milk", roll_over_events=40)
        first = (await handle.describe()).run_id
        [before] = (await comes_to(handle, "waiting"))["waiting"]
        for number in range(30):
            await handle.signal("steer", f"hint {number}")
        handle = client.get_workflow_handle(handle.id)

        async def is_another() -> bool:
            return (await handle.describe()).run_id != first

        await wait_until(is_another)
        [now] = (await comes_to(handle, "waiting"))["waiting"]
        assert (now["wait_id"], now["since"]) == (before["wait_id"], before["since"])
        await update(handle, "approve", approval_id="yes-1", approver="ada")
        result = await handle.result()
    assert result["done"] == ["walk: done", "buy milk: bought"]
    assert result["heard"] == [f"hint {number}" for number in range(30)]


async def test_a_forged_rewound_signal_does_not_undo_an_abort(client: Client) -> None:
    async with errands(client) as (queue, _):
        handle = await start(client, queue, "buy milk", "walk")
        await comes_to(handle, "waiting")
        rewind = {"to_iteration": 0, "boundary_at": "2026-01-01T00:00:00Z"}
        await asyncio.gather(handle.signal("abort", "enough"), handle.signal("rewound", rewind))
        assert (await handle.result())["stop"] == ["aborted", "enough"]


async def test_a_run_resumed_after_its_end_no_longer_shows_the_end(client: Client) -> None:
    async with errands(client) as (queue, outside):
        outside.opens.clear()
        handle = await start(client, queue, "walk", notify=True)

        async def was_notified() -> bool:
            return bool(outside.messages)

        await wait_until(was_notified)
        assert (await status_of(handle))["phase"] == "done"
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await update(handle, "approve", approval_id="yes-1", approver="ada")
        assert "the run is ending" in str(refused.value.cause)
        await handle.signal("add_context", "buy eggs")
        outside.opens.set()
        await comes_to(handle, "waiting")
        assert (await handle.describe()).typed_search_attributes.get(TERMINATION) is None
        await update(handle, "approve", approval_id="yes-1", approver="ada")
        result = await handle.result()
    assert (result["done"], result["stop"]) == (["walk: done", "buy eggs: bought"], ["completed", ""])
    assert [message["event"] for message in outside.messages] == ["ended", "waiting", "ended"]


def modules_reached_from(module: str) -> set[str]:
    """Return the modules of `workflows/` that this module imports, directly or through others."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        path = ROOT / (name.removeprefix("orga.").replace(".", "/") + ".py")
        if name in found or not path.exists():
            continue
        found.add(name)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("orga.workflows"):
                left += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return {name.removeprefix("orga.workflows.") for name in found - {module}}


def test_the_control_core_imports_nothing_of_agents() -> None:
    known = modules_reached_from("tests.support.runs.errand")
    assert {name for name in known if ".control" not in name} == {
        *("types.tool_calls.breakers", "types.names", "types.questions", "types.record"),
        *("types.telemetry_names", "types.text", "types.json_text"),
    }
    assert "phases.control.visibility" in known
