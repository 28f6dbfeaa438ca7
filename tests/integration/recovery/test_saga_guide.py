"""The example of docs/saga.md runs as printed there."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.tools.catalog import ToolCatalog
from orga.client.config.file import load_config
from orga.client.testing.script import USAGE
from orga.client.workers.parts import configured_tools
from orga.testing import answers
from orga.workflows.types.messages import Reply, ToolCall
from tests.support.programs.orga_command import ROOT
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import tool_results_in

GUIDE = (ROOT / "docs" / "saga.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "travel.py").write_text(block("python"))
    (tmp_path / "orga.toml").write_text(block("toml"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("travel")


@pytest.mark.parametrize(
    ("amount", "booked", "says"),
    [
        pytest.param(900, [], "(pay failed); what was done is taken back", id="as in the guide"),
        pytest.param(90, ["hotel", "train"], "[Saga done] all 3 steps", id="with less to pay"),
    ],
)
async def test_the_saga_of_the_guide(client: Client, project: Path, amount: int, booked: list[str], says: str) -> None:
    config = load_config(project / "orga.toml")
    agent = config.agents["travel"]
    catalog: ToolCatalog = configured_tools(config, project, {})
    plan: dict[str, Any] = json.loads(block("json"))
    plan["steps"][2]["arguments"]["amount"] = amount
    reply = Reply.of(calls=(ToolCall(call_id="g0", name="saga", arguments=plan),), finish="tool_calls", usage=USAGE)
    tools = [catalog[name] for name in agent.tools if name != "saga"]
    async with a_loop(client, [reply, answers()], *tools, agents={"default": agent}) as loop:
        await loop.run()
    assert says in tool_results_in(loop)[0]
    assert sorted(path.name for path in (project / "bookings").iterdir()) == booked
