"""Our side: the production worker with a scripted model and one tool; all settings are the defaults."""

from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from bench.script import MODEL, RESULT, TOOL, Script
from orga.activities.adapters.agents import ConfiguredAgents
from orga.activities.adapters.policy.ladder import gate_execution
from orga.activities.adapters.policy.listed import ListedTools
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.ports import PolicyEngine, ToolContext
from orga.client.workers.parts import Parts
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.context import Setup
from orga.workflows.types.tools import ToolOutput, ToolSpec

UNLIMITED_TOKENS = 10**9
UNLIMITED_S = 3_600


class ReadFile:
    """A tool that returns its text at once."""

    spec = ToolSpec(
        name=TOOL,
        description="Read a text file.",
        parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        effect="read_only",
        main_argument="path",
    )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput(content=RESULT)


def our_worker(client: Client, task_queue: str, script: Script, engine: PolicyEngine | None = None) -> Worker:
    tool = ReadFile()
    policy = engine or ListedTools()
    facts = Setup(agent="", model="", gate_execution=gate_execution(policy))
    agents = ConfiguredAgents(
        {"default": AgentConfig(tools=(TOOL,))}, {TOOL: tool.spec}, MODEL, lambda name: None, facts
    )
    parts = Parts(agents, script, policy, argument_errors, [tool])
    return build_worker(client, parts, task_queue)


def our_input(iterations: int) -> dict[str, Any]:
    """Return an input whose run ends after so many iterations and by no other limit."""
    limits = {"max_iterations": iterations, "max_total_tokens": UNLIMITED_TOKENS, "timeout_s": UNLIMITED_S}
    return {"task": "Read the file again and again.", "config": limits}
