"""Goals with pipelines on a real server: scripted agents, and a goal's own model, which should not be called."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from orga.activities.ports import ModelProvider, ModelRequest, Tool
from orga.client.testing.script import Step
from orga.testing import answers
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.messages import Reply
from tests.support.model.goals import GoalModel
from tests.support.runs.delegates import Cast, a_cast, agent
from tests.support.runs.goals import EndedGoal, wait_for_goal
from tests.support.runs.loop import Loop

LEAD = "lead"
"""The goal's own agent."""

CHAIN: dict[str, Any] = {"kind": "chain", "steps": ["finder", "writer"]}
SURVEY: dict[str, Any] = {"kind": "map_reduce", "map": "reader", "reduce": "editor"}
ESSAY: dict[str, Any] = {
    "kind": "director_critic",
    "director": "writer",
    "critic": "reviewer",
    "rubric": {"good": {"weight": 1}},
}


class TaskModel:
    """An agent whose answer is a function of its task."""

    def __init__(self, say: Callable[[str], str]) -> None:
        self._say = say
        self.tasks: list[str] = []

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return its answer."""
        self.tasks.append(request.messages[0].text)
        return answers(self._say(self.tasks[-1]))


class WaitingTaskModel(TaskModel):
    """An agent that answers when it is released."""

    def __init__(self, say: Callable[[str], str]) -> None:
        super().__init__(say)
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Wait, then answer."""
        self.began.set()
        await self.go.wait()
        return await super().complete(request, on_text)


@asynccontextmanager
async def a_pipeline(
    client: Client,
    config: Mapping[str, Any],
    agents: Mapping[str, Sequence[Step] | ModelProvider],
    *tools: Tool,
    model: GoalModel | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[Loop, Cast, GoalModel]]:
    """Run a worker with the pipeline `line` and its agents, each of which lists all tools."""
    lead = model or GoalModel()
    known = {name: agent(name, tools=[tool.spec.name for tool in tools]) for name in agents}
    pipelines = {"line": Pipeline.model_validate(config, extra="forbid")}
    known[LEAD] = agent(LEAD, tools=[tool.spec.name for tool in tools])
    async with a_cast(client, known, {**agents, LEAD: lead}, *tools, pipelines=pipelines, **options) as (loop, cast):
        yield loop, cast, lead


async def start_pipeline(
    loop: Loop, goal: str = "see to it", inputs: Sequence[str] | None = None, **config: Any
) -> WorkflowHandle[Any, Any]:
    """Start a goal with the pipeline; `config` are keys of its GoalConfig."""
    given: dict[str, Any] = {"goal": goal, "agent": LEAD, "pipeline": "line"}
    given |= {"config": config} if config else {}
    given |= {"inputs": list(inputs)} if inputs is not None else {}
    return await loop.client.start_workflow(
        "GoalWorkflow",
        given,
        id=f"goal-{uuid4()}",
        task_queue=loop.task_queue,
        execution_timeout=loop.execution_timeout,
    )


async def run_pipeline(
    loop: Loop, goal: str = "see to it", inputs: Sequence[str] | None = None, **config: Any
) -> EndedGoal:
    """Pursue a goal with the pipeline to its end."""
    return await wait_for_goal(await start_pipeline(loop, goal, inputs, **config), loop.client)
