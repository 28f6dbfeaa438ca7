"""The example of docs/pre-hydration.md runs as printed there."""

import re
import tomllib
from typing import Any

from temporalio.client import Client

from orga.client.config.sections import OrgaConfig
from orga.testing import FakeTool, ScriptedModel, answers
from tests.support.programs.orga_command import ROOT
from tests.support.runs.loop import a_loop


def example() -> OrgaConfig:
    found = re.search(r"^```toml\n(.*?)^```", (ROOT / "docs" / "pre-hydration.md").read_text(), re.S | re.M)
    assert found is not None
    return OrgaConfig.model_validate(tomllib.loads(found[1]), extra="forbid")


def echoing(name: str) -> FakeTool:
    schema: dict[str, Any] = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return FakeTool(name, lambda arguments, context: f"{name} of {arguments['input']}", parameters=schema)


async def test_each_reference_kind_of_the_guide_is_looked_up_by_the_tool_it_names(client: Client) -> None:
    agent = example().agents["triage"]
    assert agent.config.pre_hydration is not None
    tools = [echoing(name) for name in agent.tools]
    async with a_loop(client, [answers()], *tools) as loop:
        task = "https://example.com/page ./a.md ../a ~/a /abs/a.md .github/ci.yml #42 owner/name#42 PR #55 OPS-7"
        ran = await loop.run(task, pre_hydration=agent.config.pre_hydration.model_dump(mode="json"))

    assert isinstance(loop.provider, ScriptedModel)
    block = loop.provider.seen[0].messages[1].text
    assert re.findall(r"^\w+ of .*$", block, re.M) == [
        "fetch_url of https://example.com/page",
        *(f"read_file of {path}" for path in ("./a.md", "../a", "~/a", "/abs/a.md", ".github/ci.yml")),
        "read_issue of #42",
        "read_issue of owner/name#42",
        "read_pull_request of PR #55",
        "find_ticket of OPS-7",
    ]
    (entry,) = [entry for entry in ran.journal if entry.event == "PreHydrationComplete"]
    assert (entry.data["references_found"], entry.data["resolved"]) == (10, 10)
