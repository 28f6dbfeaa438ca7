"""A run with many decisions: 20 tools, several calls at a time, failed steps, open circuits, a full context."""

import logging
import uuid
from collections.abc import Callable
from typing import Any

from temporalio.client import Client, WorkflowHistory

from bench.sides.ours import our_input
from bench.sides.script import MODEL, RESULT, TEXT
from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.ports import ModelProvider, ModelRequest, ToolContext, ToolError
from orga.client.workers.parts import Parts
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput, ToolSpec

TASK_QUEUE = "bench-busy"
READING = 16
MISTAKEN, BROKEN = ("mistaken_0", "mistaken_1"), ("broken_0", "broken_1")
"""Mistaken calls fail by their own fault and are remembered as steps. Broken tools open their circuit."""


class _Tool:
    """Returns a text at once, or fails."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.spec = ToolSpec(
            name=name,
            description="Read a text file.",
            parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            effect="read_only",
            options=ToolOptions(max_attempts=1),
            main_argument="path",
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        if self._name in MISTAKEN + BROKEN:
            raise ToolError(f"{arguments['path']} cannot be read", retryable=self._name in BROKEN)
        return ToolOutput(content=RESULT)


TOOLS = [_Tool(name) for name in (*(f"read_{n}" for n in range(READING)), *MISTAKEN, *BROKEN)]


class _Script:
    """Reads two files each time. Every other time some call fails."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Be a provider."""
        number = sum(message.role == "assistant" for message in request.messages)
        names = [f"read_{number % READING}", f"read_{(number + 5) % READING}"]
        names += [MISTAKEN[number // 2 % 2]] if number % 2 else []
        names += [BROKEN[number // 4 % 2]] if number % 4 == 2 else []
        calls = tuple(
            ToolCall(call_id=f"call_{uuid.uuid4().hex}", name=name, arguments={"path": f"docs/{uuid.uuid4()}.md"})
            for name in names
        )
        usage = Usage(input_tokens=20_000, output_tokens=40)
        return Reply.of(TEXT, calls=calls, finish="tool_calls", usage=usage)

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Be the only provider."""
        return self, name


async def busy_run(client: Client, iterations: int) -> WorkflowHistory:
    """Run this number of iterations and return the history."""
    logging.getLogger("temporalio.activity").setLevel(logging.CRITICAL)  # the calls fail on purpose
    specs = {tool.spec.name: tool.spec for tool in TOOLS}
    facts = Setup(agent="", model="", roll_over_events=10**6)
    agents = ConfiguredAgents({"default": AgentConfig(tools=tuple(specs))}, specs, MODEL, lambda name: None, facts)
    parts = Parts(agents, _Script(), ListedTools(), find_argument_errors, TOOLS)
    async with build_worker(client, parts, TASK_QUEUE):
        handle = await client.start_workflow(
            "AgentWorkflow", our_input(iterations), id=f"busy-{uuid.uuid4()}", task_queue=TASK_QUEUE, result_type=dict
        )
        result = await handle.result()
    assert result["iterations"] == iterations, result["termination"]
    return await handle.fetch_history()
