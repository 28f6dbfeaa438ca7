"""Agents that delegate to each other: each has a script of its own."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client, WorkflowHandle

from activities.ports import ModelProvider, ModelRequest, Tool
from tests.support.loop import Loop, Ran, a_loop
from tests.support.scripted import USAGE, ScriptedProvider, Step
from workflows.types.agents import AgentConfig
from workflows.types.messages import Reply, ToolCall


def delegates(*targets: str, task: str = "do it", **fields: Any) -> Reply:
    """Return a reply that delegates to these agents at once."""
    made = tuple(
        ToolCall(call_id=f"d_{i}", name="delegate", arguments={"agent": target, "task": task})
        for i, target in enumerate(targets)
    )
    return Reply(calls=made, finish="tool_calls", usage=USAGE, **fields)


def agent(name: str, *delegates: Any, tools: Sequence[str] = (), **config: Any) -> AgentConfig:
    """Return an agent whose model is its own script."""
    given = {"model": f"scripted:{name}", "tools": tuple(tools), "delegates": delegates, "config": config}
    return AgentConfig.model_validate(given)


class Cast:
    """Plays each agent by its own script."""

    def __init__(self, scripts: Mapping[str, Sequence[Step] | ModelProvider]) -> None:
        self._players = {
            name: ScriptedProvider(script) if isinstance(script, Sequence) else script
            for name, script in scripts.items()
        }

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply of the agent whose model is asked."""
        return await self._players[request.model.removeprefix("scripted:")].complete(request, on_text)

    def seen(self, name: str) -> list[ModelRequest]:
        """Return what an agent was asked."""
        player = self._players[name]
        assert isinstance(player, ScriptedProvider)
        return player.seen

    def told(self, name: str, call: int = -1) -> list[str]:
        """Return the messages of one model call of an agent, its task left out."""
        return [message.text for message in self.seen(name)[call].messages[1:]]


@asynccontextmanager
async def a_cast(
    client: Client,
    agents: Mapping[str, AgentConfig],
    scripts: Mapping[str, Sequence[Step] | ModelProvider],
    *tools: Tool,
    **options: Any,
) -> AsyncGenerator[tuple[Loop, Cast]]:
    """Run a worker that has these agents; runs start with `lead`."""
    cast = Cast(scripts)
    async with a_loop(client, cast, *tools, agents=agents, **options) as loop:
        yield loop, cast


async def led(loop: Loop, task: str = "lead", **config: Any) -> Ran:
    """Run the agent `lead` to its end."""
    return await loop.run({"task": task, "agent": "lead"}, **config)


async def leading(loop: Loop, task: str = "lead", **config: Any) -> WorkflowHandle[Any, Any]:
    """Start the agent `lead`."""
    return await loop.start({"task": task, "agent": "lead"}, **config)
