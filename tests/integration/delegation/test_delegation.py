"""A run delegates a part of its task to another agent, and reads its answer, or why there is none."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.delegation import DelegateSpec
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.runs.delegates import (
    PAIR,
    a_cast,
    agent,
    children_of,
    delegates,
    result_of,
    run_lead,
    start_lead,
    untrusted_text,
)
from tests.support.runs.loop import Deny
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.values.policies import a_verdict


async def test_the_answer_of_a_delegate_is_the_result_of_the_call(client: Client) -> None:
    look = FakeTool("look", lambda arguments, context: "42 files")
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {
        "lead": [delegates("helper", task="count the files"), answers("there are 42")],
        "helper": [calls("look"), answers("42")],
    }
    async with a_cast(client, agents, scripts, look) as (loop, cast):
        ran = await run_lead(loop)
        [child] = await children_of(client, ran)

    assert [message.text for message in cast.seen("helper")[0].messages] == ["count the files"]
    assert untrusted_text(cast.messages_to("lead")[-1]) == "42"
    assert ran.result.output == "there are 42"
    assert (ran.result.usage.model_calls, ran.result.usage.total_tokens, ran.result.iterations) == (4, 440, 2)
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 1, "denied": 0, "failed": 0, "delegated": 1}
    assert child == f"{ran.handle.id}.1.0"


async def test_an_empty_answer_counts_as_an_answer(client: Client) -> None:
    ended = Reply.of(
        calls=(ToolCall(call_id="t", name="terminate", arguments={"reason": "nothing to say", "output": ""}),)
    )
    agents = PAIR | {"helper": agent("helper", tools=["terminate"])}
    async with a_cast(client, agents, {"lead": [delegates("helper"), answers()], "helper": [ended]}) as (loop, cast):
        ran = await run_lead(loop)

    assert untrusted_text(cast.messages_to("lead")[-1]) == "(empty answer)"
    assert ran.result.tool_calls.failed == 0


async def test_a_delegate_has_the_tenant_and_the_trusted_context(client: Client) -> None:
    seen: list[GateRequest] = []

    class Watching:
        is_embedded = True

        async def judge(self, proposal: GateRequest) -> Verdict:
            seen.append(proposal)
            return a_verdict(True)

    scripts = {"lead": [delegates("helper"), answers()], "helper": [answers()]}
    async with a_cast(client, PAIR, scripts, engine=Watching()) as (loop, _):
        await loop.run({"task": "t", "agent": "lead", "tenant": "acme", "trusted_context": {"clearance": 2}})

    assert [(p.agent, p.tenant, p.trusted_context) for p in seen] == [
        (name, "acme", {"clearance": 2}) for name in ("lead", "helper", "lead")
    ]
    assert list(seen[0].delegates) == [DelegateSpec(agent="helper")]


@pytest.mark.parametrize(
    ("agents", "target", "config", "refusal"),
    [
        pytest.param(PAIR, "nobody", {}, "[Invalid call] the arguments of delegate do not fit", id="unknown"),
        pytest.param(PAIR, "helper", {"max_delegation_depth": 0}, "[Not run] 0 delegations lead here", id="depth"),
        pytest.param(PAIR, "helper", {"max_iterations": 1}, "[Not run] nothing is left to delegate with", id="budget"),
    ],
)
async def test_an_impossible_delegation_is_reported_and_starts_no_run(
    client: Client, agents: Any, target: str, config: dict[str, Any], refusal: str
) -> None:
    async with a_cast(client, agents, {"lead": [delegates(target), answers()], "helper": [answers()]}) as (loop, cast):
        ran = await run_lead(loop, **config)
        assert await children_of(client, ran) == []
        reported = [message["text"] for message in await ran.handle.query("conversation") if message["role"] == "tool"]

    assert reported[0].startswith(refusal)
    assert cast.seen("helper") == []
    why = "invalid" if refusal.startswith("[Invalid") else "not_run"
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 0, "denied": 0, "failed": 0, why: 1}


async def test_an_agent_waiting_for_this_one_is_not_delegated_to_again(client: Client) -> None:
    agents = PAIR | {"helper": agent("helper", "lead")}
    scripts = {"lead": [delegates("helper"), answers()], "helper": [delegates("lead"), answers("alone")]}
    async with a_cast(client, agents, scripts) as (loop, cast):
        ran = await run_lead(loop)
        [child] = await children_of(client, ran)
        assert (await result_of(client, child))["tool_calls"]["run"] == 0

    expected = "[Not run] agent 'lead' waits for this already (lead > helper); do it yourself or choose another"
    assert cast.messages_to("helper") == ["", expected]
    assert untrusted_text(cast.messages_to("lead")[-1]) == "alone"


async def test_a_denied_delegation_is_reported_and_starts_nothing(client: Client) -> None:
    scripts = {"lead": [delegates("helper"), answers()], "helper": [answers()]}
    async with a_cast(client, PAIR, scripts, engine=Deny("delegate")) as (loop, cast):
        ran = await run_lead(loop)
        assert await children_of(client, ran) == []

    assert cast.messages_to("lead")[-1] == "[Policy denied] delegate is forbidden"
    assert ran.result.tool_calls.denied == 1


async def test_the_delegate_tool_has_the_same_recovery_as_any_tool(client: Client) -> None:
    """A person retries it: that starts another run, whose effects count as those of the same call."""
    pay = FakeTool("pay", effect="idempotent")
    agents = {
        "lead": agent("lead", "helper", recovery={"strategy": "escalate"}),
        "helper": agent("helper", tools=["pay"], max_iterations=1),
    }
    scripts = {
        "lead": [delegates("helper"), answers("paid")],
        "helper": [calls("pay"), calls("pay"), answers("never asked")],
    }
    async with a_cast(client, agents, scripts, pay) as (loop, cast):
        handle = await start_lead(loop)
        first = await wait_for_question(handle)
        assert "did not finish: max_iterations" in first["data"]["error"]
        await send_update(handle, "resolve_escalation", {"escalation_id": first["wait_id"], "choice": "retry"})
        second = await wait_for_question(handle)
        decision = {"escalation_id": second["wait_id"], "choice": "result", "result": "I paid it"}
        await send_update(handle, "resolve_escalation", decision)
        ran = await loop.ended(handle)
        assert await children_of(client, ran) == [f"{handle.id}.1.0", f"{handle.id}.1.0.r1"]

    assert "I paid it" in cast.messages_to("lead")[-1]
    assert len({context.idempotency_key for context in pay.contexts}) == 1
    assert ran.result.usage.model_calls == 4


async def test_an_agent_without_delegates_is_not_offered_the_delegate_tool(client: Client) -> None:
    agents = PAIR | {"lead": agent("lead")}
    async with a_cast(client, agents, {"lead": [delegates("helper"), answers()]}) as (loop, cast):
        ran = await run_lead(loop)
        assert await children_of(client, ran) == []

    assert cast.messages_to("lead")[-1] == "[Invalid call] there is no tool 'delegate'; the tools are: none"
