"""The names that policies can use: tools and agents of a configuration, or of the tests in a folder."""

from collections.abc import Callable, Mapping
from pathlib import Path

from orga.activities.adapters.agents.agents import with_default_agent
from orga.activities.adapters.agents.loop_tools import LISTED_TOOLS, delegate_tool
from orga.activities.adapters.policy.cedar_names import PolicyVocabulary
from orga.client.config.sections import OrgaConfig
from orga.client.policies.cases import case_files, read_cases
from orga.client.workers.tools import available_tools
from orga.workflows.types.tool_calls.loop_tools import loop_tool, tool_needing
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolSpec

_LOOP_TOOLS = (delegate_tool(()), *LISTED_TOOLS)


async def policy_vocabulary(config: OrgaConfig, env: Mapping[str, str], say: Callable[[str], None]) -> PolicyVocabulary:
    """Return the names of a configuration. MCP servers are asked for their tools.

    Raises:
        ValueError: A tool of the configuration is unavailable.
    """
    root = (config.tools.files.root or Path.cwd()).resolve()
    async with available_tools(config, root, env, say) as tools:
        specs = [each.tool.spec for each in tools]
    names = [spec.name for spec in specs]
    unseen = (f"{name}_*" for name in config.mcp.servers)
    agents = with_default_agent(config.agents)
    decide = [ToolSpec(name=tool_needing("decisions"))] if any(agent.decisions for agent in agents.values()) else []
    return PolicyVocabulary(
        tools={spec.name: spec for spec in (*specs, *_LOOP_TOOLS, *decide)},
        agents=frozenset(agents),
        unseen=tuple(glob for glob in unseen if not any(name.startswith(glob[:-1]) for name in names)),
    )


def with_tests(known: PolicyVocabulary, folder: Path) -> PolicyVocabulary:
    """Return the names together with those in a folder's tests.

    Raises:
        ConfigError: A file of tests cannot be used.
    """
    files = [read_cases(path) for path in case_files(folder)] if any(folder.glob("**/*.test.toml")) else []
    tools = {name: tool for file in files for name, tool in file.tools.items()}
    cases = [case for file in files for case in file.test]
    runs = [case for case in cases if case.tool and loop_tool(case.tool).is_run]
    delegates = {name for case in runs if isinstance(name := case.arguments.get("agent"), str)}
    described = {
        name: ToolSpec(name=name, parameters=tool.parameters, options=ToolOptions(tags=tool.tags))
        for name, tool in tools.items()
    }
    agents = known.agents | delegates | {case.agent for case in cases}
    return PolicyVocabulary({**described, **known.tools}, agents, known.unseen)
