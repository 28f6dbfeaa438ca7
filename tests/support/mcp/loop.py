"""The loop with tools of MCP servers and with its own."""

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.mcp.servers import McpServers
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.ports import PolicyEngine, Tool
from orga.client.testing.script import ScriptedModels, Step
from orga.client.workers.parts import Parts
from orga.testing import ScriptedModel
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.mcp.sources import TAKEN, settings_of
from tests.support.runs.loop import WORKER_FACTS, Loop


@asynccontextmanager
async def an_mcp_loop(
    client: Client,
    steps: Sequence[Step],
    servers: Mapping[str, McpServer],
    *tools: Tool,
    listed: Sequence[str],
    env: Mapping[str, str],
    options: Mapping[str, ToolOptions] | None = None,
    engine: PolicyEngine | None = None,
) -> AsyncGenerator[Loop]:
    """Run a worker with these servers, whose default agent lists `listed`."""
    provider = ScriptedModel(steps, repeats=True)
    source = McpServers(settings_of(env, options or {}, **servers), TAKEN)
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    agents: dict[str, Any] = {"default": AgentConfig(tools=tuple(listed))}
    specs = {tool.spec.name: tool.spec for tool in tools}
    parts = Parts(
        agents=ConfiguredAgents(agents, specs, "scripted:model", lambda model: None, WORKER_FACTS, source=source),
        models=ScriptedModels(provider),
        policy=engine or ListedTools(),
        argument_errors=find_argument_errors,
        tools=tools,
        source=source,
    )
    async with source, build_worker(client, parts, loop.task_queue):
        yield loop
