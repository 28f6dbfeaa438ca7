"""Dead letters from Python: how a handle reports refusals, and forks that requeue letters of ended runs."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.client.errors import NoAnswer, NotTakenYet, Refused, RunEnded
from orga.client.past.fork import read_ended_run, requeue_in_fork
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.runs.loop import a_loop, a_worker
from tests.support.runs.questions import wait_for_question
from tests.support.runs.rewound import wait_for_rewound


def save(*results: str) -> FakeTool:
    """Return a tool that fails first, and then returns these results. A failed call becomes a dead letter."""
    left = list(results)

    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(tool.contexts) == 1:
            raise ToolError("down")
        return left.pop(0)

    recovery = Recovery(strategy="dead_letter", max_attempts=1)
    tool = FakeTool("save", body, effect="idempotent", options=ToolOptions(recovery=recovery))
    return tool


async def test_a_fork_requeues_the_letter_with_its_key_and_the_model_reads_the_result(client: Client) -> None:
    tool, provider = (
        save("saved"),
        ScriptedModel([calls("save"), answers("without it"), answers("with it")], repeats=True),
    )
    async with a_loop(client, provider, tool) as loop:
        first = await loop.run()
        there = await read_ended_run(client, first.handle.id)
        assert [letter.letter_id for letter in there.letters] == ["1.0"]
        ran = await wait_for_rewound(client, await requeue_in_fork(client, there, ["1.0"]))
        assert [letter.letter_id for letter in (await read_ended_run(client, first.handle.id)).letters] == ["1.0"]
        assert (await read_ended_run(client, ran.handle.id)).letters == ()

    assert (first.result.output, ran.result.output) == ("without it", "with it")
    assert len(tool.contexts) == 2
    assert len({context.idempotency_key for context in tool.contexts}) == 1
    assert provider.seen[2].messages[-2].text == "without it"
    assert "saved" in provider.seen[2].messages[-1].text
    assert [e.data["strategy"] for e in ran.journal if e.event == "RecoveryTriggered"] == ["requeue"]


async def test_a_run_terminated_in_an_iteration_is_forked_at_the_one_before(client: Client) -> None:
    async def hangs(request: Any) -> Any:
        await handle.terminate("an operator")
        return answers()

    tool = save("saved")
    async with a_loop(
        client, [calls("save"), calls("look"), hangs, answers("in the end")], tool, FakeTool("look")
    ) as loop:
        handle = await loop.start()
        with pytest.raises(Exception, match="terminated"):
            await AgentHandle(client, handle.id).result()
        ran = await wait_for_rewound(
            client, await requeue_in_fork(client, await read_ended_run(client, handle.id), ["1.0"])
        )
    assert ran.result.output == "in the end"
    assert len(tool.contexts) == 2


async def test_refused_decisions_say_why_and_a_valid_one_is_taken(client: Client) -> None:
    async with a_loop(client, [calls("look"), answers()], FakeTool("look")) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        wait = await wait_for_question(handle)
        run = AgentHandle(client, handle.id)
        with pytest.raises(Refused, match="no escalation 'nothing' waits here"):
            await run.resolve_escalation("nothing", "skip")
        with pytest.raises(Refused, match="max_tokens: unknown key"):
            await run.extend_budget(max_tokens=5)
        with pytest.raises(Refused, match=r"no dead letter '9\.9'"):
            await run.requeue("9.9")
        assert [w.wait_id for w in (await run.live_status()).waiting] == [wait["wait_id"]]
        assert await run.extend_budget(max_iterations=5) == {"max_iterations": 5}
        ran = await loop.ended(handle)
        for decide in (run.requeue("1.0"), run.extend_budget(max_iterations=9), run.resolve_escalation("w", "skip")):
            with pytest.raises(RunEnded):
                await decide
    assert ran.result.termination.reason == "completed"


async def test_without_a_worker_no_decision_is_sent(client: Client) -> None:
    handle = await client.start_workflow("AgentWorkflow", {"task": "t"}, id="agent-alone", task_queue="nobody polls")
    with pytest.raises(NoAnswer, match="no worker answered on task queue 'nobody polls'"):
        await AgentHandle(client, handle.id).extend_budget(max_iterations=5)
    await handle.terminate()


async def test_a_decision_whose_worker_went_away_takes_effect_with_the_next_worker(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server lists a worker for a while after it has gone, so the decision is sent."""
    monkeypatch.setattr("orga.client.runs.exchange.ANSWER_TIMEOUT", timedelta(seconds=1))
    provider = ScriptedModel([calls("look"), answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        await wait_for_question(handle)
    with pytest.raises(NotTakenYet, match="it may take effect when one comes"):
        await AgentHandle(client, handle.id).extend_budget(max_iterations=5)
    async with a_worker(loop, FakeTool("look")):
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "completed"
