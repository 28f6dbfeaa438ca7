"""Each turn of a goal uses the tier configured for it, and the others use the goal's model."""

import uuid
from collections.abc import Callable

import pytest
from temporalio.client import Client

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.ports import ModelProvider, ModelRequest
from orga.client.workers.parts import Parts
from orga.testing import FakeTool, answers
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.tiers import GoalTiers, ModelTiers
from orga.workflows.types.tool_calls.delegation import Delegate
from tests.support.model.goals import PARTIAL, GoalModel, a_step, evaluation_reply, says
from tests.support.runs.goals import EndedGoal, pursue
from tests.support.runs.loop import WORKER_FACTS, Loop

OWN, BIG, SMALL = "openai:own", "openai:big", "openai:small"
TIERS = ModelTiers(heavy=(BIG,), light=(SMALL,))


HELPS = "an agent's step"


class OfBoth(GoalModel):
    """Pursues a goal, and also answers as the agent of a step."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply of the turn, or an answer."""
        if any(goal_prompt_in(message.text) for message in request.messages if message.role == "user"):
            return await super().complete(request, on_text)
        self.asked.append((HELPS, ""))
        return answers("helped")


class ByName:
    """Resolves each name to its own model."""

    def __init__(self, *names: str, **own: Reply) -> None:
        turns = {
            "plan": says(steps=[a_step("a")]),
            "evaluate": evaluation_reply("a", **PARTIAL),
            "decide": says(action="done", confidence=0.9),
        }
        self.known = {name: OfBoth(**{**turns, **own}) for name in names}

    def asked(self) -> dict[str, list[str]]:
        """Return the turns for which each model was called."""
        return {name: known.turns for name, known in self.known.items()}

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Return the model of this name."""
        return self.known[name], name.partition(":")[2]


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        pytest.param(OWN, {OWN: ["decide", "summary"], BIG: ["plan"], SMALL: ["evaluate"]}, id="by the config"),
        pytest.param("tier:light", {OWN: [], BIG: ["plan"], SMALL: ["evaluate", "decide", "summary"]}, id="a tier"),
    ],
)
async def test_each_turn_uses_its_tier(client: Client, model: str, asked: dict[str, list[str]]) -> None:
    models = ByName(OWN, BIG, SMALL)
    assert (await pursued_with(client, models, TIERS, default=AgentConfig(model=model, tools=("look",)))).reason == (
        "completed"
    )
    assert models.asked() == asked


async def test_the_local_tier_binds_all_turns_and_the_agents_of_the_steps(client: Client) -> None:
    models = ByName(OWN, BIG, SMALL, plan=says(steps=[a_step("a", "helper", task="help")]))
    lead = AgentConfig(model="tier:local", tools=(), delegates=(Delegate(agent="helper"),))
    tiers = ModelTiers(local=(OWN,), heavy=(BIG,), light=(SMALL,))
    pursued = await pursued_with(client, models, tiers, default=lead, helper=AgentConfig(tools=()))
    assert pursued.reason == "completed"
    assert models.asked() == {OWN: ["plan", HELPS, "evaluate", "decide", "summary"], BIG: [], SMALL: []}


async def pursued_with(client: Client, models: ByName, tiers: ModelTiers, **agents: AgentConfig) -> EndedGoal:
    """Pursue a goal with a default model outside of the local tier, and with tiers for its turns."""
    look = FakeTool("look")
    turns = GoalTiers(plan="heavy", evaluate="light")
    specs = {"look": look.spec}
    known = ConfiguredAgents(agents, specs, BIG, lambda name: None, WORKER_FACTS, tiers=tiers, goal_tiers=turns)
    parts = Parts(
        agents=known, models=models, policy=ListedTools(), argument_errors=find_argument_errors, tools=(look,)
    )
    loop = Loop(client, f"test-{uuid.uuid4()}", models.known[OWN])
    async with build_worker(client, parts, loop.task_queue):
        return await pursue(loop)
