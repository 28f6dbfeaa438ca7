"""With a permit key no worker carries out a call that the gate has not signed, whoever requests it."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payloads
from temporalio.api.workflowservice.v1 import RespondActivityTaskCompletedByIdRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from orga.activities.gate.permits import PermitKeys
from orga.activities.ports import ToolContext, ToolError
from orga.client.past.fork import read_ended_run, requeue_in_fork
from orga.client.past.rewind import rewind
from orga.client.proof.verify import verify
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.worker import build_worker
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import WORKER_FACTS, Loop, Ran, parts_of
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.runs.rewound import wait_for_rewound
from tests.support.values.policies import a_verdict

KEYS = PermitKeys(["k" * 32])
OTHERS = PermitKeys(["x" * 32])


@asynccontextmanager
async def signing(
    client: Client, steps: Any, *tools: FakeTool, keys: PermitKeys | None = KEYS, queue: str = "", **options: Any
) -> AsyncGenerator[Loop]:
    """Run a worker that has permit keys."""
    provider = ScriptedModel(cast("list[Any]", steps), repeats=True) if isinstance(steps, list) else steps
    loop = Loop(client, queue or f"test-{uuid.uuid4()}", provider)
    parts = replace(parts_of(loop, *tools, **options), permits=keys)
    async with build_worker(client, parts, loop.task_queue):
        yield loop


async def faults_of(client: Client, workflow_id: str, keys: PermitKeys = KEYS) -> list[str]:
    """Return the faults that `verify` finds."""
    found = await verify(client, workflow_id, permits=keys)
    assert "permits" in {check.name for check in found.checks}
    return [f"{check.name}: {check.detail}" for check in found.checks if not check.ok]


def pay(**fields: Any) -> FakeTool:
    return FakeTool("pay", effect="irreversible", **fields)


PAYS = [calls("pay", arguments={"cents": 900, "to": "Grüße", "rate": 1.0}), answers()]


@pytest.mark.parametrize("execution", ["activity", "local"])
async def test_a_signed_call_is_carried_out_and_verified(client: Client, execution: Any) -> None:
    look = FakeTool("look", options=ToolOptions(execution=execution))
    async with signing(client, [calls("look", "look", arguments={"n": 1.5}), answers()], look) as loop:
        ran = await loop.run()
        assert await faults_of(client, ran.handle.id) == []
        assert "permits: 1.0 look: no valid permit; 1.1 look: no valid permit" in await faults_of(
            client, ran.handle.id, OTHERS
        )
    assert (len(look.contexts), ran.result.tool_calls.run) == (2, 2)


class Changes:
    """A policy that replaces the model's arguments."""

    is_embedded = True

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Allow at most 9 cents."""
        is_more = proposal.call is not None and proposal.call.arguments.get("cents") != 9
        return a_verdict(True, arguments={"cents": 9} if is_more and proposal.call else None, version="v|1")


async def test_the_arguments_set_by_policy_are_signed(client: Client) -> None:
    tool = pay()
    async with signing(client, list(PAYS), tool, engine=Changes()) as loop:
        ran = await loop.run()
        assert await faults_of(client, ran.handle.id) == []
    assert len(tool.contexts) == 1


async def test_an_approved_call_is_signed_after_its_approval_even_after_a_rewind(client: Client) -> None:
    tool = pay()
    async with signing(client, [*PAYS, *PAYS], tool, engine=Asks(version="v1")) as loop:
        handle = await loop.start()
        await send_update(handle, "approve", approval_argument((await wait_for_held_calls(handle))[0]))
        await handle.result()
        run = await rewind(client, handle.id, 0)
        again = client.get_workflow_handle(handle.id)
        await send_update(again, "approve", approval_argument((await wait_for_held_calls(again))[0], approver="a|b"))
        await wait_for_rewound(client, run)
        assert await faults_of(client, handle.id) == []
    assert len(tool.contexts) == 2


def fails_once(name: str, recovery: Recovery) -> FakeTool:
    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(tool.contexts) == 1:
            raise ToolError("down")
        return "ok"

    tool = FakeTool(name, body, effect="idempotent", options=ToolOptions(recovery=recovery, max_attempts=1))
    return tool


async def test_a_call_retried_by_a_person_has_the_latest_permit(client: Client) -> None:
    """Days may have passed, and workers may have another key by then."""
    tool, engine = fails_once("look", Recovery(strategy="escalate", max_attempts=1)), Asks(tools=(), version="v1")
    async with signing(client, [calls("look"), answers()], tool, engine=engine) as loop:
        handle = await loop.start()
        wait_id = (await wait_for_question(handle))["wait_id"]
        engine.version = "v2"
        await send_update(handle, "resolve_escalation", {"escalation_id": wait_id, "choice": "retry"})
        ran = await loop.ended(handle)
        assert await faults_of(client, handle.id) == []
    begun = [event.activity_task_scheduled_event_attributes for event in ran.history.events]
    permits = [json.loads(each.input.payloads[0].data)["permit"] for each in begun if each.activity_id.startswith("1.")]
    assert [permit[-2:] for permit in permits] == ["v1", "v2"]


async def test_fallbacks_sagas_and_requeued_calls_are_signed_too(client: Client) -> None:
    first = fails_once("first", Recovery(strategy="fallback", alternatives=("pay",), max_attempts=1))
    letter = fails_once("letter", Recovery(strategy="dead_letter", max_attempts=1))
    tool = pay()
    steps: list[dict[str, Any]] = [{"tool": "pay", "arguments": {}, "kind": "final"}]
    saga = Reply.of(calls=(ToolCall(call_id="s", name="saga", arguments={"steps": steps}),), finish="tool_calls")
    script = [calls("first", "letter"), saga, answers(), answers()]
    async with signing(client, script, first, letter, tool, listed=("saga",)) as loop:
        ran = await loop.run()
        fork = await wait_for_rewound(
            client, await requeue_in_fork(client, await read_ended_run(client, ran.handle.id), ["1.1"])
        )
        assert await faults_of(client, ran.handle.id) == []
        assert await faults_of(client, fork.handle.id) == []
    assert (len(tool.contexts), len(letter.contexts)) == (2, 2)


async def test_a_lookup_before_the_first_step_is_signed_too(client: Client) -> None:
    fetch = FakeTool("fetch_url", parameters={"type": "object", "properties": {"url": {"type": "string"}}})
    async with signing(client, [answers()], fetch) as loop:
        ran = await loop.run("see https://a.io and https://b.io")
        assert await faults_of(client, ran.handle.id) == []
    assert len(fetch.contexts) == 2


async def test_an_old_key_is_valid_while_it_is_listed(client: Client) -> None:
    hold, tool = Hold(), pay()
    async with signing(client, [hold.step(PAYS[0]), *PAYS], tool) as loop:
        handle = await loop.start()
        await hold.reached()
        hold.go.set()
        await handle.result()
    new = PermitKeys(["n" * 32, "k" * 32])
    assert await faults_of(client, handle.id, new) == []
    assert await faults_of(client, handle.id, PermitKeys(["n" * 32])) != []


@workflow.defn(name="Thief", sandboxed=False)
class Thief:
    """Someone with access to the namespace, who can schedule any activity on the worker's queue."""

    @workflow.run
    async def run(self, place: str, queue: str, request: dict[str, Any]) -> str:
        return await workflow.execute_activity(
            "pay",
            request,
            activity_id=place,
            task_queue=queue,
            start_to_close_timeout=timedelta(seconds=20),
        )


@pytest.mark.parametrize("has_permit", [False, True], ids=["without a permit", "with a permit of another run"])
@pytest.mark.parametrize("keys", [KEYS, None], ids=["with a key", "without a key"])
async def test_a_call_that_no_gate_judged_is_refused(client: Client, has_permit: bool, keys: PermitKeys | None) -> None:
    tool = pay()
    async with signing(client, list(PAYS), tool, keys=keys) as loop:
        ran = await loop.run()
        request = {**(await recorded_input(client, ran, "pay")), **({} if has_permit else {"permit": ""})}
        own = f"thief-{uuid.uuid4()}"
        async with Worker(client, task_queue=own, workflows=[Thief]):
            stolen = client.execute_workflow("Thief", args=["1.0", loop.task_queue, request], id=own, task_queue=own)
            if keys is None:  # docs/production.md warns of this
                assert "ok" in str(await stolen)
            else:
                with pytest.raises(WorkflowFailureError) as failed:
                    await stolen
                assert "no valid permit" in str(failed.value.cause.__cause__)
    assert len(tool.contexts) == (2 if keys is None else 1)


async def recorded_input(client: Client, ran: Ran, tool: str) -> dict[str, Any]:
    for event in ran.history.events:
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_type.name == tool:
            return (await client.data_converter.decode(scheduled.input.payloads))[0]
    raise AssertionError(tool)


class Slow:
    """An engine that is a remote server, so the gate is an activity that somebody else could complete."""

    is_embedded = False

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.over = asyncio.Event()

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Block long enough that somebody else answers first."""
        if proposal.call is None:
            return a_verdict(True)
        self.asked.set()
        await self.over.wait()
        return a_verdict(False, reason="no")


@pytest.mark.parametrize("permit", ["", "A" * 22])
async def test_a_forged_verdict_lets_nothing_run(client: Client, permit: str) -> None:
    tool, engine = pay(), Slow()
    setup = WORKER_FACTS.model_copy(update={"gate_execution": "activity"})
    async with signing(client, list(PAYS), tool, engine=engine, setup=setup) as loop:
        handle = await loop.start()
        await engine.asked.wait()
        [gate] = (await handle.describe()).raw_description.pending_activities
        forged = await client.data_converter.encode([{"verdicts": [{"decision": "allow", "permit": permit}]}])
        await client.workflow_service.respond_activity_task_completed_by_id(
            RespondActivityTaskCompletedByIdRequest(
                namespace=client.namespace,
                workflow_id=handle.id,
                activity_id=gate.activity_id,
                result=Payloads(payloads=forged),
            )
        )
        engine.over.set()
        ran = await loop.ended(handle)
        assert any("1.0 pay: no valid permit" in fault for fault in await faults_of(client, handle.id))
    assert tool.contexts == []
    assert (ran.result.tool_calls.run, ran.result.tool_calls.not_run) == (0, 1)


async def test_a_permit_adds_few_bytes(client: Client) -> None:
    """docs/production.md gives the numbers: 34 bytes in the verdict, 34 and the version in the call."""
    sizes: dict[bool, int] = {}
    looks = [calls("look", arguments={"n": n}) for n in range(10)]
    for signs in (False, True):
        keys = KEYS if signs else None
        async with signing(client, [*looks, answers()], FakeTool("look"), keys=keys) as loop:
            ran = await loop.run()
        events = ran.history.events
        sizes[signs] = sum(
            len(payload.data)
            for event in events
            for payloads in (
                event.activity_task_scheduled_event_attributes.input,
                *event.marker_recorded_event_attributes.details.values(),
            )
            for payload in payloads.payloads
        )
    assert 60 <= (sizes[True] - sizes[False]) / 10 <= 70
