"""Activities of another worker as tools: gated, keyed and journaled like all others."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from orga.activities.adapters.tools import activity_tool
from orga.activities.adapters.tools.activity_tool import ActivityTool
from orga.activities.adapters.tools.catalog import with_options
from orga.activities.ports import Tool
from orga.client.cli.workbench.doctor import activity_queue_checks
from orga.client.config.sections import OrgaConfig
from orga.testing import ScriptedModel, answers, calls
from orga.workflows.types.names import ACTIVITY_CALL_WORKFLOW
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions
from tests.support.hold import Hold, wait_for_event, wait_until
from tests.support.parts.team_workers import started_worker, team_worker
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import Loop, a_loop, a_worker
from tests.support.runs.questions import send_update, tool_results_in

PARAMETERS = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}


@asynccontextmanager
async def other_worker(client: Client, run: Callable[..., Any]) -> AsyncGenerator[str]:
    """Yield the queue of a worker that knows nothing of this project, and has an activity `RefundOrder`."""
    plain = await Client.connect(client.service_client.config.target_host, namespace=client.namespace)
    queue = f"team-{uuid.uuid4()}"
    refund = activity.defn(name="RefundOrder")(run)
    async with Worker(plain, task_queue=queue, activities=[refund]):
        yield queue


def refund_tool(queue: str, effect: Effect = "irreversible", limit_s: float = 30, **more: Any) -> Tool:
    tool = ActivityTool(
        "refund", task_queue=queue, activity="RefundOrder", parameters=PARAMETERS, effect=effect, **more
    )
    return with_options([tool], {"refund": ToolOptions(timeout_s=limit_s)})[0]


def refunds() -> ScriptedModel:
    return ScriptedModel([calls("refund", arguments={"order": "A-7"}), answers("done")], repeats=True)


async def test_an_activity_is_called_after_the_gate_with_its_key(client: Client) -> None:
    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
    facts = {"user": "ada", "note": "n" * 2_000}

    async def refund(order: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        seen.append((order, context))
        return {"refunded": 900, "note": "in\u200bvisible"}

    async with other_worker(client, refund) as queue:
        tool = refund_tool(queue, pass_context=True)
        async with a_loop(client, refunds(), tool, engine=Asks(tools=("refund",))) as loop:
            handle = await loop.start({"task": "do it", "tenant": "acme", "trusted_context": facts})
            [held] = await wait_for_held_calls(handle)
            assert seen == []
            await send_update(handle, "approve", approval_argument(held, approver="grace"))
            ran = await loop.ended(handle)
    [(order, context)] = seen
    assert [context[name] for name in ("agent", "tenant", "trusted_context", "approver")] == [
        "default",
        "acme",
        facts,
        "grace",
    ]
    assert (order, context["workflow_id"], ran.result.output) == ({"order": "A-7"}, handle.id, "done")
    assert len(context["idempotency_key"]) > 8
    assert '{"note":"invisible","refunded":900}' in tool_results_in(loop)[0]
    dispatched = [each["tool"] for entry in ran.journal for each in entry.data.get("tools", ()) if "tool" in each]
    assert dispatched == ["refund"]


@pytest.mark.parametrize(
    ("failure", "effect", "reported", "attempts"),
    [
        (ApplicationError("no such order", type="NoOrder", non_retryable=True), "idempotent", "NoOrder: no such", 1),
        (ApplicationError("card declined", "nothing was done", non_retryable=True), "irreversible", "declined", 1),
        (ApplicationError("receipt lost", "it took effect"), "irreversible", "It took effect", 1),
        (ApplicationError("database is down"), "idempotent", "database is down", 3),
        (ApplicationError("database is down"), "irreversible", "may have taken effect", 1),
    ],
)
async def test_a_failure_is_reported_and_repeated_by_its_effect(
    client: Client, failure: ApplicationError, effect: Effect, reported: str, attempts: int
) -> None:
    count = 0

    async def refund(order: dict[str, Any]) -> str:
        nonlocal count
        count += 1
        raise failure

    async with other_worker(client, refund) as queue, a_loop(client, refunds(), refund_tool(queue, effect)) as loop:
        await loop.run(recovery={"max_attempts": 3, "base_delay_ms": 10})
    assert reported in tool_results_in(loop)[0]
    assert ("may have taken effect" in tool_results_in(loop)[0]) == (reported == "may have taken effect")
    assert count == attempts


async def test_a_queue_without_a_worker_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity_tool, "PICKUP_S", 1.0)
    async with a_loop(client, refunds(), refund_tool("nobody")) as loop:
        await loop.run()
    [text] = tool_results_in(loop)
    assert "no worker took RefundOrder from the queue nobody" in text
    assert "taken effect" not in text


async def test_the_queue_of_the_run_itself_is_refused(client: Client) -> None:
    queue = f"test-{uuid.uuid4()}"
    async with a_loop(client, refunds(), refund_tool(queue), task_queue=queue) as loop:
        await loop.run()
    [text] = tool_results_in(loop)
    assert "RefundOrder is on the queue of the run itself; serve it on another one" in text
    assert "taken effect" not in text


async def test_a_call_outlives_the_worker_that_waits_for_it(client: Client) -> None:
    hold, count = Hold(), 0

    async def refund(order: dict[str, Any]) -> str:
        nonlocal count
        count += 1
        return await hold.then("refunded")

    async with other_worker(client, refund) as queue:
        loop, tool = Loop(client, f"test-{uuid.uuid4()}", refunds()), refund_tool(queue, "idempotent")
        async with a_worker(loop, tool):
            handle = await loop.start()
            await hold.reached()
        hold.go.set()
        async with a_worker(loop, tool):
            await loop.ended(handle)
    assert (tool_results_in(loop), count) == (["refunded"], 1)


async def test_an_abort_cancels_the_activity(client: Client) -> None:
    hold = Hold()

    async def refund(order: dict[str, Any]) -> str:
        async def beat() -> None:
            while True:
                activity.heartbeat()
                await asyncio.sleep(0.05)

        beating = asyncio.create_task(beat())
        try:
            return await hold.then("refunded")
        finally:
            beating.cancel()

    async with (
        other_worker(client, refund) as queue,
        a_loop(client, refunds(), refund_tool(queue, heartbeat_timeout_s=1)) as loop,
    ):
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)
        await wait_for_event(hold.cancelled)
    assert ran.result.termination.reason == "aborted"


@pytest.mark.parametrize("given", [None, 7, {"activity": "a"}, {"task_queue": ""}, "own queue"])
async def test_the_workflow_of_a_call_takes_nothing_else(client: Client, given: Any) -> None:
    async with a_loop(client, refunds()) as loop:
        if given == "own queue":
            given = {"activity": "gate", "task_queue": loop.task_queue, "timeout_s": 5, "pickup_s": 5}
        with pytest.raises(WorkflowFailureError) as raised:
            await client.execute_workflow(
                ACTIVITY_CALL_WORKFLOW, given, id=f"call-{uuid.uuid4()}", task_queue=loop.task_queue
            )
    assert isinstance(raised.value.cause, ApplicationError)
    assert (raised.value.cause.type, raised.value.cause.non_retryable) == ("InvalidInput", True)


@pytest.fixture(scope="module", params=["go", "java"])
def team_command(request: pytest.FixtureRequest) -> list[str]:
    return team_worker(request.param)


@pytest.mark.parametrize("effect", ["idempotent", "irreversible"])
async def test_a_worker_in_another_language_is_killed_amid_a_call(
    client: Client, team_command: list[str], tmp_path: Path, effect: Effect
) -> None:
    queue, effects = f"team-{uuid.uuid4()}", tmp_path / "effects"
    where = (client.service_client.config.target_host, client.namespace, queue)
    tool = refund_tool(queue, effect, pass_context=True, heartbeat_timeout_s=2)

    async def has_begun() -> bool:
        return effects.exists() and bool(effects.read_text())

    async with a_loop(client, refunds(), tool) as loop:
        first = started_worker(team_command, *where, effects=effects, hangs=True)
        try:
            handle = await loop.start(recovery={"max_attempts": 3, "base_delay_ms": 10})
            await wait_until(has_begun)
        finally:
            first.kill()
            first.wait()
        second = started_worker(team_command, *where, effects=effects)
        try:
            await loop.ended(handle)
        finally:
            second.kill()
            second.wait()
    [text], keys = tool_results_in(loop), effects.read_text().split()
    if effect == "irreversible":
        assert (len(keys), "may have taken effect" in text) == (1, True)
    else:
        assert (len(keys), len(set(keys))) == (2, 1)
        assert '"refunded":"A-7"' in text


async def test_doctor_names_a_queue_that_nobody_polls(client: Client) -> None:
    async def refund(order: dict[str, Any]) -> dict[str, Any]:
        return order

    async with other_worker(client, refund) as queue:
        activities = {"refund": {"task_queue": queue}, "ship": {"task_queue": "forgotten"}}
        config = OrgaConfig.model_validate({"tools": {"activities": activities}})

        async def is_refund_polled() -> bool:
            return len(await activity_queue_checks(client, config)) == 1

        await wait_until(is_refund_polled)
        [check] = await activity_queue_checks(client, config)
    assert (check.ok, check.warning) == (True, True)
    assert check.detail == "no worker polls task queue 'forgotten', where calls of ship wait"
