"""Calls of deferred tools that wait through restarts, continue-as-new, rewinds, resets and forks, and in all kinds of
run."""

import uuid
from dataclasses import replace
from typing import Any

import pytest
from temporalio.client import Client

import orga
from orga.activities.gate.permits import PermitKeys
from orga.client.journal.timeline_reader import timelines_of
from orga.client.journal.timeline_records import TimelineCall
from orga.client.past.fork import fork
from orga.client.past.rewind import plan_rewind, rewind
from orga.client.proof.verify import verify
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from tests.integration.gate.test_approvals_across_rewinds import by_the_server_alone
from tests.support.hold import wait_until
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.runs import goals
from tests.support.runs.deferred import SCORE, a_check, checks, completion, refusal, waiting_calls
from tests.support.runs.delegates import a_cast, agent, delegates
from tests.support.runs.loop import WORKER_FACTS, Loop, a_loop, a_worker, parts_of
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.runs.rewound import wait_for_rewound
from tests.support.runs.sagas import saga
from tests.support.runs.sessions import begin, close_session, turn_summary

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


async def test_a_wait_outlives_its_worker_and_a_signal_needs_none(client: Client) -> None:
    order = FakeTool("order", "ordered")
    loop, tool = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel(checks(), repeats=True)), a_check(start=order)
    async with a_worker(loop, tool):
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
    await handle.signal("complete_tool_call", completion(wait))
    async with a_worker(loop, tool):
        await loop.ended(handle)
    assert (tool_results_in(loop), len(order.contexts)) == (["fine"], 1)


async def test_a_run_that_continues_as_new_before_and_after_the_call_has_its_result_once(client: Client) -> None:
    steps = [calls("look"), *checks()[:1], calls("look"), answers("done")]
    async with a_loop(client, steps, a_check(), FakeTool("look"), setup=EACH_ITERATION) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(wait))
        ran = await loop.ended(handle)
    assert len(ran.histories) == 4
    assert tool_results_in(loop, 3) == ["ok", "fine", "ok"]


@pytest.mark.parametrize("is_orga", [True, False], ids=["rewound", "reset by the server"])
async def test_a_run_set_back_waits_again_under_the_same_key(client: Client, is_orga: bool) -> None:
    order = FakeTool("order", "ordered")
    async with a_loop(client, [*checks(), *checks()], a_check(start=order)) as loop:
        handle = await loop.start()
        [first] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(first, "one"))
        await loop.ended(handle)
        await (rewind(client, handle.id, 0) if is_orga else by_the_server_alone(client, handle))
        again = client.get_workflow_handle(handle.id)
        [second] = await waiting_calls(again)
        await send_update(again, "complete_tool_call", completion(second, "two"))
        ran = await wait_for_rewound(client, AgentHandle(client, handle.id))
    assert ran.result.output == "done"
    assert (first["wait_id"], len(order.contexts)) == (second["wait_id"], 2)
    assert tool_results_in(loop, 3) == ["two"]


async def timeline_calls(client: Client, run_id: str) -> list[TimelineCall]:
    records = (await timelines_of(client).page(run_id, limit=5)).items
    return [call for record in records for call in record.calls]


async def test_a_rewind_names_the_work_that_was_started_once_and_the_timeline_ends_the_call_with_its_result(
    client: Client,
) -> None:
    async with a_loop(client, checks(), a_check(start=FakeTool("order"), effect="irreversible")) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        assert len((await plan_rewind(client, handle.id, 0)).irreversible_calls) == 1
        [waiting] = await timeline_calls(client, handle.id)
        await send_update(handle, "complete_tool_call", completion(wait))
        await loop.ended(handle)
        [call] = await timeline_calls(client, handle.id)
        assert len((await plan_rewind(client, handle.id, 0)).irreversible_calls) == 1
    assert (waiting.state, waiting.ended) == ("running", None)
    assert (call.state, call.result and call.result.head) == ("ok", "fine")


async def test_the_result_for_other_arguments_fits_no_call_of_a_rewound_run(client: Client) -> None:
    steps = [*checks()[:1], calls("check", arguments={"person": "bob"}), answers("done")]
    async with a_loop(client, steps, a_check()) as loop:
        handle = await loop.start()
        [first] = await waiting_calls(handle)
        await rewind(client, handle.id, 0)
        again = client.get_workflow_handle(handle.id)
        [second] = await waiting_calls(again)
        assert "no call waits for a result under" in await refusal(again, completion(first))
        await send_update(again, "complete_tool_call", completion(second))
        await wait_for_rewound(client, AgentHandle(client, handle.id))
    assert first["wait_id"] != second["wait_id"]


async def test_a_fork_has_calls_of_its_own(client: Client) -> None:
    async with a_loop(client, [*checks()[:1], *checks()], a_check()) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        forked = await fork(client, handle.id, 0)
        other = client.get_workflow_handle(forked.id)
        [own] = await waiting_calls(other)
        assert "no call waits for a result under" in await refusal(other, completion(wait))
        await send_update(other, "complete_tool_call", completion(own))
        await wait_for_rewound(client, forked)
        assert [each["wait_id"] for each in await waiting_calls(handle)] == [wait["wait_id"]]
        await handle.signal("abort")
        await loop.ended(handle)
    assert own["wait_id"] != wait["wait_id"]


async def test_a_step_of_a_goal_waits(client: Client) -> None:
    model = GoalModel(
        plan=says(steps=[a_step("s1", "check", person="ada")]),
        evaluate=evaluation_reply("s1"),
        decide=says(action="done", confidence=0.9),
    )
    async with a_loop(client, model, a_check(output_schema=SCORE)) as loop:
        handle = await goals.start(loop)
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(wait, {"score": 7}))
        ended = await goals.wait_for_goal(handle, client)
    assert ended.reason == "completed"
    assert [each.data["status"] for each in ended.journal if each.event == "StepExecuted"] == ["ok"]


async def test_a_turn_of_a_session_waits_and_an_interruption_ends_the_wait(client: Client) -> None:
    steps = [*checks(), *checks()[:1], answers("later")]
    async with a_loop(client, steps, a_check()) as loop:
        session = await begin(loop)
        handle = client.get_workflow_handle(session.id)
        turn = await session.post("check her")
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(wait))
        assert turn_summary(await session.result_of(turn)) == (1, "done", "completed")
        turn = await session.post("again")
        [wait] = await waiting_calls(handle)
        await session.interrupt("never mind")
        assert turn_summary(await session.result_of(turn))[2] == "interrupted"
        assert "no call waits for a result" in await refusal(handle, completion(wait))
        await close_session(session)


async def test_a_delegate_waits_and_stops_the_clock_of_its_parent(client: Client) -> None:
    agents = {"lead": agent("lead", "helper"), "helper": agent("helper", tools=("check",))}
    scripts = {"lead": [delegates("helper"), answers("led")], "helper": checks()}
    async with a_cast(client, agents, scripts, a_check()) as (loop, _):
        handle = await loop.start({"task": "do it", "agent": "lead"})

        async def is_held() -> bool:
            return any(child["held"] for child in (await handle.query("status"))["children"])

        await wait_until(is_held)
        [child] = (await handle.query("status"))["children"]
        helper = client.get_workflow_handle(child["workflow_id"])
        [wait] = await waiting_calls(helper)
        await send_update(helper, "complete_tool_call", completion(wait))
        ran = await loop.ended(handle)
    assert ran.result.output == "led"


async def test_a_step_of_a_saga_waits_but_a_compensation_cannot(client: Client) -> None:
    step = {"tool": "check", "arguments": {"person": "ada"}, "kind": "final"}
    undone = {**step, "kind": "compensatable", "compensation": {"tool": "check", "arguments": {"person": "ada"}}}
    agents = {"default": AgentConfig(tools=("check", "saga"))}
    async with a_loop(client, [saga(undone), saga(step), answers("done")], a_check(), agents=agents) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(wait))
        await loop.ended(handle)
    assert "its compensation: the results of check come later" in tool_results_in(loop)[0]
    assert "[Saga done]" in tool_results_in(loop, 2)[1]


async def test_workers_with_permit_keys_carry_out_both_parts_of_a_call(client: Client) -> None:
    keys = PermitKeys(["k" * 32])
    loop = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel(checks(), repeats=True))
    parts = replace(parts_of(loop, a_check(start=FakeTool("order"))), permits=keys)
    async with build_worker(client, parts, loop.task_queue):
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(wait))
        await loop.ended(handle)
        found = await verify(client, handle.id, permits=keys)
    assert [f"{check.name}: {check.detail}" for check in found.checks if not check.ok] == []
    assert tool_results_in(loop) == ["fine"]


async def test_a_lookup_before_the_first_step_cannot_wait(client: Client) -> None:
    tool: Any = orga.DeferredTool("check", effect="read_only", parameters={"properties": {"url": {"type": "string"}}})
    async with a_loop(client, [answers("done")], tool) as loop:
        ran = await loop.run(
            "see https://example.com", pre_hydration={"enabled": True, "resolution_tools": {"url": "check"}}
        )
    [found] = [each.data for each in ran.journal if each.event == "PreHydrationComplete"]
    assert "a lookup cannot wait" in str(found)
