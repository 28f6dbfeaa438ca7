"""A defect in a background task fails the workflow task: the run is shown as stuck until the repair."""

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.client.cli.inspect.inbox import inbox_entry_lines
from orga.client.cli.inspect.status import history_status
from orga.client.cli.workbench.doctor import _stuck_run_checks  # pyright: ignore[reportPrivateUsage]
from orga.client.errors import TaskFails
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.client.runs.failing_tasks import failing_task
from orga.client.runs.inbox import inbox
from orga.client.runs.listing import RunFilter, listed_runs
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.decisions.control import interventions, notifications
from orga.workflows.phases.control import lifetime
from orga.workflows.types.setup import Setup
from tests.support.hold import Hold, wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import WORKER_FACTS, Loop, a_loop, a_worker
from tests.support.runs.questions import send_update


def spoiled(*_: Any) -> Any:
    raise ZeroDivisionError("a defect")


async def stuck(client: Client, handle: WorkflowHandle[Any, Any]) -> str:
    """Wait until the run is shown as stuck, and return the cause."""
    causes: list[str] = []

    async def fails() -> bool:
        found = await failing_task(client, await handle.describe())
        causes[:] = [found.cause] if found else []
        return bool(found)

    await wait_until(fails)
    return causes[0]


async def test_a_deadline_with_a_defect_still_ends_the_run_after_the_repair(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run stops, continues at the same place after the repair, and then keeps its limit."""
    hold = Hold()
    wait = FakeTool("wait", lambda arguments, context: hold.then("never"))
    async with a_loop(client, [calls("wait"), answers()], wait) as loop:
        with monkeypatch.context() as patch:
            patch.setattr(lifetime, "remaining_s", spoiled)
            handle = await loop.start(timeout_s=3)
            assert "ZeroDivisionError: a defect" in await stuck(client, handle)
        result = await handle.result()
    assert result["termination"]["reason"] == "timeout"


async def test_a_late_defect_of_the_deadline_does_not_lift_the_limit(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the decision raises when the time is up, the run must not continue past its limit."""
    hold = Hold()
    wait = FakeTool("wait", lambda arguments, context: hold.then("too late"))
    async with a_loop(client, [calls("wait"), answers()], wait) as loop:
        handle = await loop.start(timeout_s=3)
        await hold.reached()
        with monkeypatch.context() as patch:
            patch.setattr(lifetime, "with_end_by_timeout", spoiled)
            assert "a defect" in await stuck(client, handle)
            hold.go.set()
        result = await handle.result()
    assert result["termination"]["reason"] == "timeout"


async def test_a_defect_in_notifications_is_shown_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = WORKER_FACTS.model_copy(update={"notify": ("approval",)})
    async with a_loop(client, [calls("pay"), answers()], FakeTool("pay"), engine=Asks(), setup=facts) as loop:
        monkeypatch.setattr(notifications, "unannounced_questions", spoiled)
        handle = await loop.start()
        assert "a defect" in await stuck(client, handle)
        await handle.terminate()


@asynccontextmanager
async def a_stuck_run(client: Client, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[str, str]]:
    """Yield a waiting run that no worker can continue, and its held call. Repair it afterwards."""
    await register_missing(client)
    facts = Setup(agent="", model="", search_attributes=True)
    async with a_loop(client, [calls("pay"), answers()], FakeTool("pay"), engine=Asks(), setup=facts) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        with monkeypatch.context() as patch:
            patch.setattr(interventions, "with_guidance", spoiled)
            await handle.signal("steer", "go on")
            await stuck(client, handle)
            yield handle.id, question["approval_id"]
        await wait_until(lambda: _is_repaired(client, handle))
        await send_update(handle, "approve", approval_argument(question))
        assert (await handle.result())["termination"]["reason"] == "completed"


async def _is_repaired(client: Client, handle: WorkflowHandle[Any, Any]) -> bool:
    return not (await handle.describe()).raw_description.HasField("pending_workflow_task")


async def test_a_stuck_run_is_shown_as_stuck_everywhere(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown with the cause and the remedy, and not as a run without a worker."""
    async with a_stuck_run(client, monkeypatch) as (run, approval):
        with pytest.raises(TaskFails, match=r"a defect.*orga rewind .*--to-iteration"):
            await AgentHandle(client, run).approve(approval, "ada")

        [question] = [question async for question in inbox(client) if question.run_id == run]
        assert question.failing is not None
        shown = "\n".join(inbox_entry_lines(question, datetime.now(UTC)))
        assert "a defect" in shown
        assert "orga worker" not in shown

        [row] = await listed_runs(client, RunFilter(query=f"WorkflowId = '{run}'"), 5)
        assert (row.state, row.task_fails is not None) == ("running (stuck)", True)

        [check] = [check for check in await _stuck_run_checks(client) if run in check.name]
        assert (check.ok, "a defect" in check.detail, run in check.remedy) == (False, True, True)

        reported = replace(await history_status(read_journal(client, run)), failing=question.failing)
        assert "a defect" in "\n".join(reported.lines())
        assert "a defect" in reported.json_fields()["task_fails"]["cause"]


async def test_a_task_that_took_too_long_is_repeated(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread returns during the signals, long after the SDK has given it up."""
    slow = [4.0]
    intervention = interventions.intervention

    def slow_once(*given: Any) -> Any:
        time.sleep(slow.pop() if slow else 0)
        return intervention(*given)

    monkeypatch.setattr(interventions, "intervention", slow_once)
    loop = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel([answers("done")], repeats=True))
    handle = await loop.start()
    for _ in range(20):
        await handle.signal("steer", "go on")
    async with a_worker(loop):
        result = await handle.result()

    assert (result["output"], slow) == ("done", [])
