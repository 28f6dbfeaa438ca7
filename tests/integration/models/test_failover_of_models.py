"""If a run's model refuses or is down, the next model of the tier answers, over real HTTP in both protocols."""

import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import pytest
from temporalio.client import Client

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.agents.tiers import NO_GOAL_TIERS
from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.client.workers.parts import Parts
from orga.testing import FakeTool, ScriptedModel, answers
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.models.tiers import GoalTiers, ModelTiers
from orga.workflows.types.models.usage import ModelPrice
from orga.workflows.types.tool_calls.breakers import CircuitOptions
from orga.workflows.types.tool_calls.delegation import Delegate
from tests.support.model.chat_server import Calls, Says, chat_server
from tests.support.model.goals import a_step, evaluation_reply, says
from tests.support.model.refusing import NO_CREDIT, NO_QUOTA, refusing_server
from tests.support.runs.critics import a_critic, evaluations, verdict
from tests.support.runs.goals import pursue
from tests.support.runs.loop import WORKER_FACTS, Loop, Ran

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "OPENAI_API_KEY": "sk-0123456789"}
CLAUDE, GPT, HOUSE = "anthropic:claude-opus-5", "openai:gpt-6", "openai-compatible:qwen"
PRICE = ModelPrice(input=1000.0, output=1000.0)


@asynccontextmanager
async def a_loop(
    client: Client,
    base_urls: Mapping[str, str],
    tiers: ModelTiers,
    breaker: CircuitOptions | None = None,
    goal_tiers: GoalTiers = NO_GOAL_TIERS,
    **agents: AgentConfig,
) -> AsyncGenerator[Loop]:
    """Run a worker whose models are real adapters with servers in this process."""
    registry = ModelRegistry(KEYS, base_urls, prices={HOUSE: PRICE})
    known, look = {"default": AgentConfig(model="tier:heavy", tools=()), **agents}, FakeTool("look")
    parts = Parts(
        agents=ConfiguredAgents(
            *(known, {"look": look.spec}, HOUSE, registry.check, WORKER_FACTS), tiers=tiers, goal_tiers=goal_tiers
        ),
        models=registry,
        policy=ListedTools(),
        argument_errors=find_argument_errors,
        tools=(look,),
        model_breaker=breaker or CircuitOptions(),
    )
    loop = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel([], repeats=True))
    async with build_worker(client, parts, loop.task_queue):
        yield loop
    await registry.close()


def failovers(ran: Ran) -> list[tuple[str, str]]:
    found = [entry for entry in ran.journal if entry.event == "ModelFailedOver" and "run" not in entry.data]
    return [(entry.data["from"], entry.data["to"]) for entry in found]


async def test_the_third_model_answers_if_two_have_no_credit(client: Client) -> None:
    tiers = ModelTiers(heavy=(CLAUDE, GPT, HOUSE))
    with (
        refusing_server(402, NO_CREDIT) as claude,
        refusing_server(429, NO_QUOTA) as gpt,
        chat_server(Says(["from the ", "house"])) as house,
    ):
        urls = {"anthropic": claude.url, "openai": gpt.url, "openai-compatible": house.url}
        async with a_loop(client, urls, tiers) as loop:
            ran = await loop.run("ask")
    assert (ran.result.output, ran.result.termination.reason) == ("from the house", "completed")
    assert failovers(ran) == [(CLAUDE, GPT), (GPT, HOUSE)]
    assert (claude.asked, gpt.asked, len(house.requests)) == (1, 1, 1)
    assert ran.result.usage.model_calls == 1
    prepared = next(entry for entry in ran.journal if entry.event == "Prepared")
    assert list(prepared.data["tiers"]["run"]["models"]) == [CLAUDE, GPT, HOUSE]


async def test_the_reviewer_of_a_critique_is_the_model_that_answered(client: Client) -> None:
    """One server plays both models, so the verdict is also the answer."""
    tiers = ModelTiers(heavy=(HOUSE,), light=(GPT, HOUSE))
    agent = AgentConfig(model="tier:heavy", tools=(), critics=(a_critic(model="tier:light"),))
    with refusing_server(429, NO_QUOTA) as gpt, chat_server(Says([verdict().text])) as house:
        urls = {"openai": gpt.url, "openai-compatible": house.url}
        async with a_loop(client, urls, tiers, default=agent) as loop:
            ran = await loop.run("ask")
    assert failovers(ran) == [(GPT, HOUSE)]
    assert evaluations(ran, "reviewer") == [f"model:{HOUSE}"]


async def test_a_failover_in_a_goal_costs_what_the_answering_model_costs(client: Client) -> None:
    """All other turns use the goal's own model, which is also the answering one."""
    tiers = ModelTiers(heavy=(GPT, HOUSE), light=(HOUSE,))
    agent = AgentConfig(model="tier:light", tools=("look",))
    turns = [
        says(steps=[a_step("a")]),
        *[evaluation_reply("a")] * 2,
        answers("the end"),
    ]  # the calls of a round come from a reply, too
    with (
        refusing_server(429, NO_QUOTA) as gpt,
        chat_server(*(Says(["", turn.text], tokens=100) for turn in turns)) as house,
    ):
        urls = {"openai": gpt.url, "openai-compatible": house.url}
        async with a_loop(client, urls, tiers, goal_tiers=GoalTiers(plan="heavy"), default=agent) as loop:
            pursued = await pursue(loop)
    assert (pursued.reason, pursued.result.output) == ("completed", "the end")
    gone = [entry for entry in pursued.journal if entry.event == "ModelFailedOver"]
    assert [(each.data["from"], each.data["to"], each.iteration) for each in gone] == [(GPT, HOUSE, 1)]
    assert gpt.asked == 1
    usage = pursued.result.usage
    assert usage.model_calls == len(house.requests) == 3
    assert (usage.total_tokens, usage.cost_usd) == (600, pytest.approx(0.6))


async def test_an_open_circuit_causes_a_failover(client: Client) -> None:
    """The first attempt opens the circuit, so the second uses the next model."""
    breaker = CircuitOptions(failure_threshold=1, recovery_s=600)
    with (
        refusing_server(500, {"error": {"message": "down"}}) as gpt,
        chat_server(Says(["from ", "the house"])) as house,
    ):
        urls = {"openai": gpt.url, "openai-compatible": house.url}
        async with a_loop(client, urls, ModelTiers(heavy=(GPT, HOUSE)), breaker) as loop:
            ran = await loop.run("ask")
    assert ran.result.output == "from the house"
    assert failovers(ran) == [(GPT, HOUSE)]
    assert gpt.asked == 1


async def test_if_all_models_refuse_the_run_names_each_and_no_key(client: Client) -> None:
    with refusing_server(402, NO_CREDIT) as claude, refusing_server(429, NO_QUOTA) as gpt:
        urls = {"anthropic": claude.url, "openai": gpt.url}
        async with a_loop(client, urls, ModelTiers(heavy=(CLAUDE, GPT))) as loop:
            ran = await loop.run("ask")
    assert ran.result.termination.reason == "error"
    detail = ran.result.termination.detail
    assert detail.startswith(
        "OutOfQuota: openai answered 429: You exceeded your current quota; models tried, in order:"
    )
    assert CLAUDE in detail
    assert GPT in detail
    assert not any(key in str(ran.raw) for key in KEYS.values())


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(None, "answer of agent 'helper'", id="without a model it takes the local tier"),
        pytest.param(GPT, "bound to the local tier", id="another model is refused"),
    ],
)
async def test_the_local_tier_binds_delegates(client: Client, model: str | None, expected: str) -> None:
    tiers = ModelTiers(local=(HOUSE,), heavy=(GPT,))
    lead = AgentConfig(model="tier:local", tools=(), delegates=(Delegate(agent="helper"),))
    ask = Calls("delegate", {"agent": "helper", "task": "help me"})
    with refusing_server(402, NO_QUOTA) as gpt, chat_server(ask, Says(["do", "ne"])) as house:
        urls = {"openai": gpt.url, "openai-compatible": house.url}
        helper = AgentConfig(model=model, tools=())
        async with a_loop(client, urls, tiers, lead=lead, helper=helper) as loop:
            ran = await loop.run({"task": "lead", "agent": "lead"})
    assert ran.result.output == "done"
    assert gpt.asked == 0
    results = [m["content"] for m in house.requests[-1]["messages"] if m["role"] == "tool"]
    assert expected in results[0]
