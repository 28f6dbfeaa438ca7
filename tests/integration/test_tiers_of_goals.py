"""Each turn of a goal asks the tier that the config has for it; the others ask the goal's model."""

import uuid

import pytest
from temporalio.client import Client

from orga.activities.adapters.agents import ConfiguredAgents
from orga.activities.adapters.policy.listed import ListedTools
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.ports import ModelProvider
from orga.client.workers.parts import Parts
from orga.testing import FakeTool
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tiers import GoalTiers, ModelTiers
from tests.support.model.goals import BAD, GoalModel, a_step, says, scored
from tests.support.runs.goals import pursue
from tests.support.runs.loop import WORKER_FACTS, Loop

OWN, BIG, SMALL = "openai:own", "openai:big", "openai:small"
TIERS = ModelTiers(heavy=(BIG,), light=(SMALL,))


class ByName:
    """Resolves each name to a model of its own."""

    def __init__(self, *names: str) -> None:
        turns = {
            "plan": says(steps=[a_step("a")]),
            "evaluate": scored("a", **BAD),
            "decide": says(action="done", confidence=0.9),
        }
        self.known = {name: GoalModel(**turns) for name in names}

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
async def test_turns_ask_their_tiers(client: Client, model: str, asked: dict[str, list[str]]) -> None:
    models, look = ByName(OWN, BIG, SMALL), FakeTool("look")
    parts = Parts(
        agents=ConfiguredAgents(
            {"default": AgentConfig(model=model, tools=("look",))},
            {"look": look.spec},
            OWN,
            lambda name: None,
            WORKER_FACTS,
            tiers=TIERS,
            goal_tiers=GoalTiers(plan="heavy", evaluate="light"),
        ),
        models=models,
        policy=ListedTools(),
        argument_errors=find_argument_errors,
        tools=(look,),
    )
    loop = Loop(client, f"test-{uuid.uuid4()}", models.known[OWN])
    async with build_worker(client, parts, loop.task_queue):
        pursued = await pursue(loop)
    assert pursued.reason == "completed"
    assert {name: known.turns for name, known in models.known.items()} == asked
