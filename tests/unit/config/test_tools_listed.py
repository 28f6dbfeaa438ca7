"""The tools of a configuration, each with the agents that may use it."""

import pytest

from orga.client.config.listed import tool_rows
from orga.client.config.sections import OrgaConfig

CONFIG = OrgaConfig.model_validate(
    {
        "agents": {
            "reader": {"tools": ["read_file"]},
            "searcher": {"tools": ["*_file*", "fetch_*"]},
            "caller": {"tools": ["fetch_*"]},
        },
        "mcp": {"servers": {"fetch": {"command": "server", "pinned": {"fetch_page": "0" * 32}}}},
    }
)


@pytest.mark.parametrize(
    ("tool", "agents"),
    [
        pytest.param("read_file", ["reader", "searcher"], id="an agent that lists it by a glob"),
        pytest.param("fetch_page", ["searcher", "caller"], id="a server's tool"),
        pytest.param("fetch_url", [], id="a built-in tool that only begins like the server's"),
    ],
)
def test_a_tool_shows_the_agents_that_may_use_it(tool: str, agents: list[str]) -> None:
    rows = {row["name"]: row for row in tool_rows(CONFIG)}
    assert rows[tool]["agents"] == agents
