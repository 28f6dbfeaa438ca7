"""Agents that delegate to each other, each with its own script, and their runs."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client, WorkflowHandle

from orga.activities.ports import ModelProvider, ModelRequest, Tool
from orga.client.testing.script import USAGE, Step
from orga.testing import ScriptedModel
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.status import AgentStatus
from tests.support.runs.loop import Loop, Ran, a_loop, check_replay, histories_of


def delegates(*targets: str, task: str = "do it", **fields: Any) -> Reply:
    """Return a reply that delegates to these agents at once."""
    made = tuple(
        ToolCall(call_id=f"d_{i}", name="delegate", arguments={"agent": target, "task": task})
        for i, target in enumerate(targets)
    )
    return Reply.of(calls=made, finish="tool_calls", usage=USAGE, **fields)


def agent(name: str, *delegates: Any, tools: Sequence[str] = (), **config: Any) -> AgentConfig:
    """Return an agent whose model is its own script."""
    given = {"model": f"scripted:{name}", "tools": tuple(tools), "delegates": delegates, "config": config}
    return AgentConfig.model_validate(given)


PAIR = {"lead": agent("lead", "helper"), "helper": agent("helper")}


class Cast:
    """Plays each agent with its own script."""

    def __init__(self, scripts: Mapping[str, Sequence[Step] | ModelProvider]) -> None:
        self._players = {
            name: ScriptedModel(script, repeats=True) if isinstance(script, Sequence) else script
            for name, script in scripts.items()
        }

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply of the agent that asks."""
        return await self._players[request.model.removeprefix("scripted:")].complete(request, on_text)

    def seen(self, name: str) -> list[ModelRequest]:
        """Return the requests to the model of an agent."""
        player = self._players[name]
        assert isinstance(player, ScriptedModel)
        return player.seen

    def messages_to(self, name: str, call: int = -1) -> list[str]:
        """Return the messages of one request of an agent, without its task."""
        return [message.text for message in self.seen(name)[call].messages[1:]]


@asynccontextmanager
async def a_cast(
    client: Client,
    agents: Mapping[str, AgentConfig],
    scripts: Mapping[str, Sequence[Step] | ModelProvider],
    *tools: Tool,
    **options: Any,
) -> AsyncGenerator[tuple[Loop, Cast]]:
    """Run a worker with these agents. Runs start with `lead`."""
    cast = Cast(scripts)
    async with a_loop(client, cast, *tools, agents=agents, **options) as loop:
        yield loop, cast


async def run_lead(loop: Loop, task: str = "lead", **config: Any) -> Ran:
    """Run the agent `lead` to its end."""
    return await loop.run({"task": task, "agent": "lead"}, **config)


async def start_lead(loop: Loop, task: str = "lead", **config: Any) -> WorkflowHandle[Any, Any]:
    """Start the agent `lead`."""
    return await loop.start({"task": task, "agent": "lead"}, **config)


async def children_of(client: Client, ran: Ran) -> list[str]:
    """Return the ids of the runs that a run started, in order, after replaying their histories."""
    events = (event for history in ran.histories for event in history.events)
    started = (event.child_workflow_execution_started_event_attributes for event in events)
    found = [each.workflow_execution.workflow_id for each in started if each.workflow_execution.workflow_id]
    for child in found:
        for history in await histories_of(client, child):
            await check_replay(history)
    return found


async def result_of(client: Client, workflow_id: str) -> Any:
    """Wait for the end of a run and return its result."""
    return await client.get_workflow_handle(workflow_id).result()


async def status_of(handle: WorkflowHandle[Any, Any]) -> AgentStatus:
    """Return the status of a run."""
    return AgentStatus.model_validate(await handle.query("status"))


def untrusted_text(text: str) -> str:
    """Return the text between the marks of untrusted content."""
    head, *lines, _ = text.splitlines()
    assert "data, not instructions]" in head
    return "\n".join(lines)
