"""An approval counts once: a call approved before a rewind has to be approved again after it."""

import uuid
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle

from orga.activities.ports import ToolContext, ToolError
from orga.client.errors import Refused
from orga.client.past.rewind import plan_rewind, rewind
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply, ToolCall
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.critics import a_person, agents_with_critics
from tests.support.runs.loop import WORKER_FACTS, Loop, a_loop
from tests.support.runs.questions import send_update
from tests.support.runs.rewound import wait_for_rewound

PAYS = [calls("pay", arguments={"cents": 900}), answers()]


async def by_orga(client: Client, handle: WorkflowHandle[Any, Any], *, keep: bool = False) -> None:
    await rewind(client, handle.id, 0, keep_interventions=keep)


async def by_orga_with_all_that_was_sent(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
    await by_orga(client, handle, keep=True)


async def by_the_server_alone(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
    """Reset the run as the Temporal UI does, without a signal to the run."""
    history = await handle.fetch_history()
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    second = [event.event_id for event in history.events if event.event_type == completed][1]
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id),
            reason="test",
            request_id=str(uuid.uuid4()),
            workflow_task_finish_event_id=second,
        )
    )


async def approved_twice(loop: Loop, reset: Any, pay: FakeTool) -> tuple[str, str]:
    """Approve a call, rewind the run, try the same approval again, and return the ids of both questions."""
    handle = await loop.start()
    first = (await wait_for_held_calls(handle))[0]
    await send_update(handle, "approve", approval_argument(first))
    await handle.result()
    assert len(pay.contexts) == 1
    await reset(loop.client, handle)
    run = AgentHandle(loop.client, handle.id)
    again = loop.client.get_workflow_handle(handle.id)
    second = (await wait_for_held_calls(again))[0]
    with pytest.raises(Refused, match="no approval is pending under"):
        await run.approve(first["approval_id"], "ada")
    assert len(pay.contexts) == 1
    await run.approve(second["approval_id"], "ada")
    await wait_for_rewound(loop.client, run)
    return first["approval_id"], second["approval_id"]


@pytest.mark.parametrize("reset", [by_orga, by_orga_with_all_that_was_sent, by_the_server_alone])
async def test_an_approval_counts_only_for_its_own_execution(client: Client, reset: Any) -> None:
    pay = FakeTool("pay", effect="irreversible")
    async with a_loop(client, [*PAYS, *PAYS], pay, engine=Asks()) as loop:
        first, second = await approved_twice(loop, reset, pay)
    assert first != second
    assert len({context.idempotency_key for context in pay.contexts}) == 1


async def test_an_approval_by_a_critic_counts_only_once(client: Client) -> None:
    pay = FakeTool("pay", effect="irreversible")
    agents = agents_with_critics(a_person(tools=("pay",)), tools=("pay",))
    async with a_loop(client, [*PAYS, *PAYS], pay, agents=agents) as loop:
        first, second = await approved_twice(loop, by_orga, pay)
    assert first != second


async def test_an_approval_of_a_saga_step_counts_only_once(client: Client) -> None:
    pay = FakeTool("pay", effect="irreversible")
    steps: list[dict[str, Any]] = [{"tool": "pay", "arguments": {"cents": 900}, "kind": "final"}]
    saga = Reply.of(calls=(ToolCall(call_id="s", name="saga", arguments={"steps": steps}),), finish="tool_calls")
    agents = agents_with_critics(tools=("pay", "saga"))
    async with a_loop(client, [saga, answers(), saga, answers()], pay, engine=Asks(), agents=agents) as loop:
        first, second = await approved_twice(loop, by_orga, pay)
    assert first != second


async def test_the_model_and_the_journal_know_the_effects_before_a_rewind(client: Client) -> None:
    """Otherwise the model would repeat a payment that it does not remember."""
    pay, save = FakeTool("pay", effect="irreversible"), FakeTool("save", effect="idempotent")
    provider = ScriptedModel([calls("pay", "save", arguments={"cents": 900}), answers(), answers()], repeats=True)
    async with a_loop(client, provider, pay, save) as loop:
        first = await loop.run()
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, 0))
    reported = provider.seen[-1].messages[-1]
    assert reported.pinned
    assert "had carried out these calls already, and nothing undoes them" in reported.text
    assert 'pay {"cents":900}: ok' in reported.text
    assert "save" not in reported.text
    [entry] = [entry for entry in ran.journal if entry.data.get("kind") == "rewind"]
    assert entry.data["left"] == ['pay {"cents":900}: ok']


async def test_calls_of_every_segment_are_listed_with_their_own_outcome(client: Client) -> None:
    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        if arguments["cents"] == 2:
            raise ToolError("no money")
        return "ok"

    pay = FakeTool("pay", body, effect="irreversible")
    each = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
    steps = [calls("pay", arguments={"cents": cents}) for cents in (1, 2, 3)]
    async with a_loop(client, [*steps, answers()], pay, setup=each) as loop:
        ran = await loop.run()
        plan = await plan_rewind(client, ran.handle.id, 0)
    assert plan.irreversible_calls == ('pay {"cents":1}: ok', 'pay {"cents":2}: failed', 'pay {"cents":3}: ok')
