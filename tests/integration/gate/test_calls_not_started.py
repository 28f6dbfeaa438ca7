"""A call that waits while a critic rejects another call is never started, since nobody has reviewed it."""

from typing import Any

from temporalio.client import Client

from orga.client.testing.script import USAGE
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply, ToolCall
from tests.support.runs.critics import a_critic, a_person, verdict
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import tool_results_in

GUARD = a_person("guard", tools=("pay",))


def a_reply(*each: tuple[str, dict[str, Any]]) -> Reply:
    made = tuple(ToolCall(call_id=f"c{index}", name=name, arguments=given) for index, (name, given) in enumerate(each))
    return Reply.of(calls=made, finish="tool_calls", usage=USAGE)


async def test_a_call_next_to_a_rejected_ending_is_not_started(client: Client) -> None:
    pay = FakeTool("pay", effect="irreversible")
    ends = a_reply(("pay", {}), ("terminate", {"reason": "done", "output": "bad"}))
    script = [ends, verdict(0.0, 0.0, "no"), answers("fine"), verdict()]
    agents = {"default": AgentConfig(tools=("pay", "terminate"), critics=(GUARD, a_critic("editor")))}
    async with a_loop(client, script, pay, agents=agents) as loop:
        ran = await loop.run()

    assert (pay.contexts, ran.result.output) == ([], "fine")
    assert tool_results_in(loop, 2)[0] == "[Not run] the reply ends the run"


async def test_a_call_over_budget_does_not_replace_a_rejected_one(client: Client) -> None:
    pay, look = FakeTool("pay", effect="irreversible"), FakeTool("look")
    script = [calls("look", "pay"), verdict(0.0, 0.0, "no"), answers("fine")]
    agents = {"default": AgentConfig(tools=("pay", "look"), critics=(GUARD, a_critic("lookers", tools=("look",))))}
    async with a_loop(client, script, pay, look, agents=agents) as loop:
        await loop.run(max_tool_calls=1)

    assert (look.contexts, pay.contexts) == ([], [])
    assert tool_results_in(loop, 2)[1] == "[Not run] the run's 1 tool calls are used up; answer with what you have"
