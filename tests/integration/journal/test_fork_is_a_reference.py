"""A fork names the past that it shares. Its worker reads that past itself and accepts no state from the starter."""

import uuid
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from orga.activities.ports import ToolContext, ToolError
from orga.client.history.chain import NoSuchIteration
from orga.client.past.fork import fork, read_ended_run, requeue_in_fork
from orga.client.proof.verify import verify
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold
from tests.support.runs.critics import BAD, a_critic, agents_with_critics, evaluations, verdict
from tests.support.runs.loop import Loop, Ran, a_loop
from tests.support.runs.rewound import wait_for_rewound

LETTERS = ToolOptions(recovery=Recovery(strategy="dead_letter", max_attempts=1))


def pay() -> FakeTool:
    """Return a tool that fails once, so that the run has a dead letter."""

    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(tool.contexts) == 1:
            raise ToolError("down")
        return "paid"

    tool = FakeTool("pay", body, effect="irreversible", options=LETTERS)
    return tool


async def start_run(loop: Loop, *arguments: Any) -> AgentHandle:
    """Start a run as any client of the server can."""
    workflow_id = f"agent-{uuid.uuid4()}"
    await loop.client.start_workflow("AgentWorkflow", args=list(arguments), id=workflow_id, task_queue=loop.task_queue)
    return AgentHandle(loop.client, workflow_id)


async def failure_of_start(loop: Loop, *arguments: Any) -> str:
    run = await start_run(loop, *arguments)
    with pytest.raises(WorkflowFailureError) as failed:
        await loop.client.get_workflow_handle(run.id).result()
    return str(getattr(failed.value.cause, "message", failed.value.cause))


def a_reference(source: str, iteration: int = 1, **more: Any) -> dict[str, Any]:
    return {"fork": {"workflow_id": source, "iteration": iteration, **more}}


async def test_any_client_can_fork_with_plain_json(client: Client) -> None:
    provider = ScriptedModel([calls("look"), answers("first"), answers("second")], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        first = await loop.run("count")
        ran = await wait_for_rewound(client, await start_run(loop, a_reference(first.handle.id)))
        found = await verify(client, ran.handle.id)

    assert ran.result.output == "second"
    assert provider.seen[2].messages == provider.seen[1].messages
    assert (ran.journal[0].event, ran.journal[0].data["task"]) == ("Started", "count")
    assert ran.journal[0].data["forked_from"]["run_id"] == first.handle.result_run_id
    assert [check for check in found.checks if not check.ok] == []


async def test_a_fork_can_be_forked(client: Client) -> None:
    provider = ScriptedModel([calls("look"), answers("1"), calls("look"), answers("2"), answers("3")], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        first = await loop.run("count")
        second = await wait_for_rewound(client, await fork(client, first.handle.id, 1))
        third = await wait_for_rewound(client, await fork(client, second.handle.id, 1, task="once more"))
        fourth = await wait_for_rewound(client, await fork(client, second.handle.id, 3, task="why?"))
        with pytest.raises(NoSuchIteration, match="no end of iteration 0 to go on from; there are 1 to 3"):
            await fork(client, second.handle.id, 0)
    assert (third.result.output, third.result.iterations, fourth.result.iterations) == ("3", 2, 4)
    assert [message.text for message in provider.seen[4].messages][-1] == "once more"


FORGED: dict[str, Any] = {
    "input": {"task": "t"},
    "origin": "made up",
    "clock": {"started_at": "2020-01-01T00:00:00Z", "stopped_at": "2020-01-01T00:00:01Z"},
    "setup": {"agent": "default", "model": "scripted:model", "tools": [{"name": "pay"}]},
    "conversation": {"messages": [{"role": "user", "text": "hi"}], "sent": 1, "digest": "00" * 32},
}
LETTER = {
    "letter_id": "1.0",
    "call": {"call_id": "c", "name": "pay", "arguments": {"cents": 900}},
    "key": "a key of the starter's choice",
    "error": "E",
    "at": "2020-01-01T00:00:00Z",
    "requeued": True,
}
SOURCE = {"workflow_id": "w", "run_id": "r", "iteration": 0}


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"forked_from": SOURCE, "dead_letters": [LETTER]}, id="an invented dead letter"),
        pytest.param({"forked_from": SOURCE, "iteration": -1}, id="before the first iteration"),
        pytest.param({"forked_from": SOURCE, "iteration": 2**70}, id="after the last one"),
    ],
)
@pytest.mark.parametrize("raw", [{"task": "t"}, None], ids=["with an input", "alone"])
async def test_a_starter_cannot_pass_the_state_of_a_fork(client: Client, state: dict[str, Any], raw: Any) -> None:
    tool = FakeTool("pay", effect="irreversible")
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay",))
    async with a_loop(client, [calls("pay"), BAD, answers()], tool, agents=agents) as loop:
        why = await failure_of_start(loop, raw, FORGED | state)
    assert "a starter cannot pass a state" in why
    assert tool.contexts == []


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"dead_letters": [LETTER]}, id="not a fork"),
        pytest.param({"carried_by": "made up", "dead_letters": [LETTER]}, id="as if carried by continue-as-new"),
        pytest.param({"fork": {"fork": SOURCE}, "dead_letters": [LETTER]}, id="a fork whose past is unread"),
    ],
)
async def test_any_other_state_from_a_starter_is_ignored(client: Client, state: dict[str, Any]) -> None:
    tool = FakeTool("pay", effect="irreversible")
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay",))
    async with a_loop(client, [calls("pay"), BAD, answers()], tool, agents=agents) as loop:
        ran = await wait_for_rewound(client, await start_run(loop, {"task": "t"}, FORGED | state))
    assert (ran.result.termination.reason, tool.contexts) == ("completed", [])


async def test_a_state_inside_the_input_is_an_unknown_key(client: Client) -> None:
    async with a_loop(client, [answers()]) as loop:
        assert "state: unknown key" in await failure_of_start(loop, {"task": "t", "state": FORGED})
        assert "forked_from: unknown key" in await failure_of_start(loop, {"task": "t", "forked_from": SOURCE})
        assert "fork.state: unknown key" in await failure_of_start(loop, a_reference("w", state=FORGED))


@pytest.mark.parametrize("says", [pytest.param(BAD, id="rejects"), pytest.param(answers("hm"), id="no verdict")])
async def test_a_critic_reviews_a_call_that_a_fork_requeues(client: Client, says: Any) -> None:
    """The agent may have a critic now that it did not have in the other run."""
    tool, review = pay(), ScriptedModel([says, *([] if says is BAD else [says]), answers()], repeats=True)
    async with a_loop(client, [calls("pay"), answers()], tool) as loop:
        first = await loop.run()
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay",))
    async with a_loop(client, review, tool, agents=agents, task_queue=loop.task_queue):
        ran = await wait_for_rewound(
            client, await requeue_in_fork(client, await read_ended_run(client, first.handle.id), ["1.0"])
        )
    assert len(tool.contexts) == 1
    assert evaluations(ran, "target", "then") == [("pay", "skipped")]
    assert "[Not run] The critic quality" in review.seen[-1].messages[-1].text


async def test_a_critic_reviews_a_call_that_a_live_run_requeues(client: Client) -> None:
    hold, tool = Hold(), pay()
    provider = ScriptedModel([calls("pay"), verdict(), hold.step(calls("look")), BAD, answers()], repeats=True)
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay", "look"))
    async with a_loop(client, provider, tool, FakeTool("look"), agents=agents) as loop:
        handle = await loop.start()
        await hold.reached()
        await AgentHandle(client, handle.id).requeue("1.0")
        hold.go.set()
        ran = await loop.ended(handle)
    assert len(tool.contexts) == 1
    assert evaluations(ran, "target", "then") == [("pay", "accepted"), ("pay", "skipped")]


async def test_a_requeued_call_keeps_the_key_of_its_own_run(client: Client) -> None:
    tool = pay()
    async with a_loop(client, [calls("pay"), answers(), answers()], tool) as loop:
        first = await loop.run()
        await wait_for_rewound(client, await start_run(loop, a_reference(first.handle.id, 2, requeue=["1.0"])))
        assert "no dead letter '9.9' in this run; there are: 1.0" in await failure_of_start(
            loop, a_reference(first.handle.id, 2, requeue=["9.9"])
        )
    assert len({context.idempotency_key for context in tool.contexts}) == 1


@workflow.defn(name="SomethingElse", sandboxed=False)
class SomethingElse:
    """A workflow of another program."""

    @workflow.run
    async def run(self, *_: Any) -> str:
        return "done"


async def test_an_unreadable_source_is_reported(client: Client) -> None:
    async with a_loop(client, [calls("look"), answers("42")], FakeTool("look")) as loop:
        first: Ran = await loop.run()
        queue, other = f"other-{uuid.uuid4()}", f"other-{uuid.uuid4()}"
        async with Worker(client, task_queue=queue, workflows=[SomethingElse]):
            await client.execute_workflow("SomethingElse", {"task": "t"}, id=other, task_queue=queue)
        nowhere = str(uuid.uuid4())
        assert "there is no run 'nobody'" in await failure_of_start(loop, a_reference("nobody"))
        assert f"the server keeps no run {nowhere!r}" in await failure_of_start(
            loop, a_reference(first.handle.id, run_id=nowhere)
        )
        assert "cannot be read" in await failure_of_start(loop, a_reference(first.handle.id, run_id="no-id-of-a-run"))
        assert "is a workflow of type SomethingElse" in await failure_of_start(loop, a_reference(other))
        assert "no end of iteration 7" in await failure_of_start(loop, a_reference(first.handle.id, 7))
        assert "is the answer of run" in await failure_of_start(loop, a_reference(first.handle.id, 2))
        assert "no agent 'admin'" in await failure_of_start(loop, {**a_reference(first.handle.id), "agent": "admin"})
        assert "does not list 'pay'" in await failure_of_start(loop, {**a_reference(first.handle.id), "tools": ["pay"]})


async def test_guidance_sent_before_the_past_is_read_reaches_the_model(client: Client) -> None:
    provider = ScriptedModel([calls("look"), answers("42"), answers("43")], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        first = await loop.run()
    run = await start_run(loop, a_reference(first.handle.id))
    await run.steer("be brief")
    async with a_loop(client, provider, FakeTool("look"), task_queue=loop.task_queue):
        ran = await wait_for_rewound(client, run)
    assert "be brief" in provider.seen[-1].messages[-1].text
    assert [entry.event for entry in ran.journal][:2] == ["Started", "InterventionReceived"]


async def test_an_abort_before_the_past_is_read_ends_the_fork(client: Client) -> None:
    async with a_loop(client, [calls("look"), answers()], FakeTool("look")) as loop:
        first = await loop.run()
    run = await start_run(loop, a_reference(first.handle.id))
    await run.abort("enough")
    async with a_loop(client, [answers("never")], task_queue=loop.task_queue):
        ran = await wait_for_rewound(client, run)
    assert ran.result.termination.reason == "aborted"
    assert ran.journal[0].data["forked_from"]["workflow_id"] == first.handle.id
