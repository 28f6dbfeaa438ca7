"""The agents of docs/delegation.md run as printed there."""

import re
import tomllib

from temporalio.client import Client

from orga.client.config.sections import OrgaConfig
from orga.testing import FakeTool, answers, calls
from tests.support.programs.orga_command import ROOT
from tests.support.runs.delegates import a_cast, delegates, run_lead, untrusted_text


async def test_the_agents_of_the_guide_delegate_as_described(client: Client) -> None:
    text = (ROOT / "docs" / "delegation.md").read_text()
    [block] = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    config = OrgaConfig.model_validate(tomllib.loads(block), extra="forbid")
    agents = {name: known.model_copy(update={"model": f"scripted:{name}"}) for name, known in config.agents.items()}
    tools = [FakeTool(name) for name in ("list_files", "read_file", "search_text", "write_file", "edit_file")]
    scripts = {
        "lead": [delegates("reader", "writer"), answers("done")],
        "reader": [calls("search_text"), answers("a.txt:3")],
        "writer": [calls("write_file"), calls("read_file"), answers("written")],
    }
    async with a_cast(client, agents, scripts, *tools) as (loop, cast):
        ran = await run_lead(loop)

    assert [untrusted_text(text) for text in cast.messages_to("lead")[-2:]] == ["a.txt:3", "written"]
    assert [tool.name for tool in cast.seen("writer")[0].tools] == ["write_file", "edit_file"]
    assert "- reader: Finds a passage" in cast.seen("lead")[0].tools[-1].description
    assert ran.result.tool_calls.delegated == 2
