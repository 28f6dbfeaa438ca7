"""Grounded decisions together with policies, people, critics, delegates, rewinds and forks."""

from typing import Any

import pytest
from pydantic_core import from_json, to_json
from temporalio.client import Client

from orga.activities.ports import ModelRequest
from orga.client.history.chain import RunHistory
from orga.client.past.fork import fork
from orga.client.past.rewind import rewind
from orga.client.proof.verify import check_histories, verify
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.integration.critics.test_grounded_decisions import INJECTION, an_agent, decides, decision, triaged
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.critics import a_critic, verdict
from tests.support.runs.decisions import FREE, proposal, triage_facts, triage_fields
from tests.support.runs.loop import Deny, Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.runs.rewound import wait_for_rewound
from tests.support.values.policies import a_verdict

TASK = {"task": "triage the ticket", "trusted_context": FREE}
AGENTS = {"default": an_agent()}


def a_ticket() -> FakeTool:
    return FakeTool("read_file", lambda arguments, _: INJECTION)


def rules(ran: Ran) -> list[str]:
    return [entry.data["rule"] for entry in ran.journal if entry.event == "DecisionGrounded"]


async def faults(client: Client, ran: Ran) -> list[str]:
    found = await verify(client, ran.handle.id)
    return [f"{check.name}: {check.detail}" for check in found.checks if not check.ok]


class Lowers:
    """A policy that lowers the severity in the model's call."""

    is_embedded = True

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Lower the severity of a decision, unless it is low already."""
        call = proposal.call
        if call is None or call.arguments["fields"]["severity"] == "low":
            return a_verdict(True)
        fields = {**call.arguments["fields"], "severity": "low"}
        return a_verdict(True, "no alarm today", arguments={**call.arguments, "fields": fields})


async def test_the_decision_uses_the_arguments_changed_by_policy(client: Client) -> None:
    async with a_loop(client, [decides(), answers()], a_ticket(), agents=AGENTS, engine=Lowers()) as loop:
        ran = await loop.run(TASK)
    assert (decision(ran)["fields"]["severity"], decision(ran)["outcome"]["severity"]) == ("low", "low")
    assert tool_results_in(loop)[0].startswith("[Arguments changed by policy] ")
    assert await faults(client, ran) == []


@pytest.mark.parametrize(("answer", "made"), [("approve", ["nobody's text was read"]), ("deny", [])])
async def test_policy_may_require_an_approval(client: Client, answer: str, made: list[str]) -> None:
    agents, engine = {"default": an_agent(required=False)}, Asks(tools=("decide",))
    async with a_loop(client, [decides(), answers()], a_ticket(), agents=agents, engine=engine) as loop:
        handle = await loop.start(TASK)
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, answer, approval_argument(question))
        ran = await loop.ended(handle)
    assert rules(ran) == made
    assert await faults(client, ran) == []


async def test_a_denied_required_decision_lets_no_answer_through(client: Client) -> None:
    steps = [decides(), answers()]
    async with a_loop(client, steps, a_ticket(), agents=AGENTS, engine=Deny("decide")) as loop:
        ran = await loop.run(TASK)
    assert ran.result.termination.reason in {"error", "policy_denial"}
    assert (ran.result.output, ran.result.data) == ("", {"decisions": {}})


async def test_a_critic_may_return_a_decision_for_revision(client: Client) -> None:
    agent = an_agent().model_copy(update={"critics": (a_critic(tools=("decide",)),)})
    steps = [decides(), verdict(0.1, 0.1), decides("medium"), verdict(), answers()]
    ran, _ = await triaged(client, *steps, agent=agent)
    assert rules(ran) == ["5"]
    assert await faults(client, ran) == []


@pytest.mark.parametrize(
    ("revisable", "made"),
    [
        pytest.param(False, ["default"], id="the first one is final"),
        pytest.param(True, ["default", "nobody's text was read"], id="the last one replaces it"),
    ],
)
async def test_two_decisions_of_one_name_in_one_reply(client: Client, revisable: bool, made: list[str]) -> None:
    [first], [second] = decides("low").calls, decides().calls
    both = Reply.of(calls=(first, second.model_copy(update={"call_id": "second"})), finish="tool_calls")
    ran, loop = await triaged(client, both, answers(), agent=an_agent(revisable=revisable))
    assert rules(ran) == made
    assert ("is final" in tool_results_in(loop)[1]) is not revisable
    assert await faults(client, ran) == []


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"decision": "other", "fields": triage_fields()}, id="an unknown name"),
        pytest.param({"decision": ["route"], "fields": triage_fields()}, id="a name that is not text"),
        pytest.param({"decision": "route"}, id="no fields"),
        pytest.param(proposal(triage_fields(users=10**400)), id="a number of 400 digits"),
        pytest.param(proposal(triage_fields() | {"users_affected": 1e308}), id="a nearly infinite number"),
        pytest.param(proposal(triage_fields("x" * 400_000)), id="a long word"),
        pytest.param(proposal({f"k{number}": number for number in range(20_000)}), id="many fields"),
        pytest.param(proposal(triage_fields() | {"severity": deep(400)}), id="a deep field"),
        pytest.param(proposal(triage_fields(), rationale={"a": 1}), id="a rationale that is no text"),
        pytest.param(proposal(triage_fields(), outcome={"page": "on-call"}), id="an outcome of the model's own"),
    ],
)
async def test_an_invalid_decision_decides_nothing(client: Client, arguments: dict[str, Any]) -> None:
    ran, _ = await triaged(client, calls("decide", arguments=arguments), decides("medium"), answers())
    assert (rules(ran), ran.result.termination.reason) == (["5"], "completed")


@pytest.mark.parametrize(
    ("iteration", "severity", "made"),
    [
        pytest.param(1, "medium", ["5"], id="after the decision, which stays"),
        pytest.param(0, "low", ["default"], id="before it, so it is made again"),
    ],
)
async def test_a_rewind_keeps_only_earlier_decisions(
    client: Client, iteration: int, severity: str, made: list[str]
) -> None:
    again = [] if iteration else [decides("low")]
    steps = [decides("medium"), answers("first"), *again, answers("second")]
    async with a_loop(client, steps, a_ticket(), agents=AGENTS) as loop:
        first = await loop.run(TASK)
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, iteration))
    assert (ran.result.output, rules(ran), decision(ran)["outcome"]["severity"]) == ("second", made, severity)
    assert await faults(client, ran) == []


async def test_a_fork_has_to_decide_again_by_its_own_facts_and_stays_tainted(client: Client) -> None:
    steps = [calls("read_file"), decides("medium"), answers("first"), answers("at once"), decides(), answers("second")]
    async with a_loop(client, steps, a_ticket(), agents=AGENTS) as loop:
        first = await loop.run(TASK)
        changes = {"trusted_context": triage_facts(alert=True)}
        ran = await wait_for_rewound(client, await fork(client, first.handle.id, 2, changes=changes))
    assert (ran.result.output, rules(ran)) == ("second", ["an alert confirms it"])
    assert decision(ran)["facts"]["tainted"]["value"] is True
    assert await faults(client, ran) == []


async def test_a_delegate_decides_by_the_facts_of_its_parent_or_not_at_all(client: Client) -> None:
    def step(request: ModelRequest) -> Reply:
        is_told = any(message.role == "tool" for message in request.messages)
        if any(tool.name == "decide" for tool in request.tools):
            return answers("decided") if is_told else decides()
        return answers("done") if is_told else calls("delegate", arguments={"agent": "triage", "task": "triage it"})

    alone = AgentConfig.model_validate({"tools": ["read_file"], "delegates": ["triage"]})
    async with a_loop(client, [step], a_ticket(), agents={"default": alone, "triage": an_agent()}) as loop:
        ran = await loop.run(TASK)
        assert '"page":"on-call"' in tool_results_in(loop, 3)[0]
        without_facts = await loop.run("triage the ticket")
    assert "trusted_context.customer.tier: is missing" in tool_results_in(loop, -1)[0]
    assert (ran.result.data, without_facts.result.tool_calls.failed) == (None, 1)
    assert await faults(client, ran) == []


async def test_verify_finds_a_result_with_a_forged_decision(client: Client) -> None:
    ran, _ = await triaged(client, calls("read_file"), decides(), answers())
    [payload] = ran.history.events[-1].workflow_execution_completed_event_attributes.result.payloads
    result = from_json(payload.data)
    result["data"]["decisions"]["route"]["outcome"]["page"] = "on-call"
    payload.data = to_json(result)
    checks, _ = await check_histories(client, ran.handle.id, [RunHistory("run", ran.history)])
    assert [check.name for check in checks if not check.ok] == ["ending"]
