"""Our side: the production worker with a scripted model and one tool. All settings are defaults."""

import asyncio
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from bench.sides.script import MODEL, RESULT, TOOL
from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.policy.engines import ListedTools, gate_execution
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.models.model_calls import Models
from orga.activities.ports import PolicyEngine, ToolContext
from orga.client.workers.parts import Parts
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.tools import ToolOutput, ToolSpec

UNLIMITED_TOKENS = 10**9
UNLIMITED_S = 3_600


class ReadFile:
    """A tool that returns its text, at once or after a delay."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s

    spec = ToolSpec(
        name=TOOL,
        description="Read a text file.",
        parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        effect="read_only",
        main_argument="path",
    )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        return ToolOutput(content=RESULT)


def our_worker(
    client: Client,
    task_queue: str,
    models: Models,
    engine: PolicyEngine | None = None,
    tool: ReadFile | None = None,
) -> Worker:
    tool = tool or ReadFile()
    policy = engine or ListedTools()
    facts = Setup(agent="", model="", gate_execution=gate_execution(policy))
    agents = ConfiguredAgents(
        {"default": AgentConfig(tools=(TOOL,))}, {TOOL: tool.spec}, MODEL, lambda name: None, facts
    )
    parts = Parts(agents, models, policy, find_argument_errors, [tool])
    return build_worker(client, parts, task_queue)


def our_input(iterations: int) -> dict[str, Any]:
    """Return an input whose run ends after this number of iterations and at no other limit."""
    limits = {"max_iterations": iterations, "max_total_tokens": UNLIMITED_TOKENS, "timeout_s": UNLIMITED_S}
    return {"task": "Read the file again and again.", "config": limits}
