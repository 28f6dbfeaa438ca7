"""The example of docs/critics.md runs as printed there."""

import json
import re
from pathlib import Path

import pytest
from temporalio.client import Client

from orga.client.config.file import load_config
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.critics import Critic
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.call_settings import ModelSettings
from tests.support.programs.orga_command import ROOT
from tests.support.runs.critics import evaluations
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update, wait_for_question

GUIDE = (ROOT / "docs" / "critics.md").read_text()
TOML = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)[0]


@pytest.fixture
def agent(tmp_path: Path) -> AgentConfig:
    (tmp_path / "orga.toml").write_text(TOML)
    return load_config(tmp_path / "orga.toml").agents["analyst"]


def scored(accuracy: float, clarity: float) -> Reply:
    verdict = {"scores": {"accuracy": accuracy, "clarity": clarity}, "feedback": "Say where from.", "approved": True}
    return answers(json.dumps(verdict))


async def test_the_critics_of_the_guide(client: Client, agent: AgentConfig) -> None:
    steps = [calls("write_file"), answers("17 %"), scored(0.5, 1.0), answers("17 % (a.md:3)"), scored(0.9, 0.8)]
    tools = [FakeTool(name) for name in agent.tools]
    provider = ScriptedModel(steps, repeats=True)
    async with a_loop(client, provider, *tools, agents={"default": agent}) as loop:
        handle = await loop.start()
        [held] = (await wait_for_question(handle))["data"]["calls"]
        await send_update(handle, "approve", {"approval_id": held["id"], "approver": "bo"})
        ran = await loop.ended(handle)
    assert ran.result.output == "17 % (a.md:3)"
    assert [len(tool.contexts) for tool in tools] == [0, 0, 0, 1]
    assert provider.seen[2].model == agent.critics[0].model
    assert evaluations(ran, "critic", "reviewer", "then") == [
        ("editor", "person:bo", "accepted"),
        ("quality", "model:anthropic:claude-sonnet-5-5", "revise"),
        ("quality", "model:anthropic:claude-sonnet-5-5", "accepted"),
    ]


def test_the_table_of_the_guide_names_every_key_with_its_default() -> None:
    rows = {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", GUIDE, re.MULTILINE)}
    fields = [name for name in Critic.model_fields if name not in ModelSettings.model_fields]  # these are one row
    assert list(rows) == list(fields)
    reported = {name: json.loads(reported[1:-1]) for name, reported in rows.items() if reported.startswith("`")}
    reported |= {name: json.loads(reported) for name, reported in rows.items() if reported[:1].isdigit()}
    defaults = Critic.model_construct().model_dump(mode="json", include=set(reported))
    assert reported == defaults
