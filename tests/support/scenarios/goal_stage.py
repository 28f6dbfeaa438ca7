"""Plays a goal on a real server, with people who answer its questions, and keeps all observations."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from temporalio import activity
from temporalio.client import Client

from orga.activities.ports import ModelRequest
from orga.client.history.events import read_events
from orga.client.history.values import converters_of
from orga.client.journal.reading import read_journal
from orga.testing import FakeTool
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.pursuit import GoalResult, GoalStatus
from orga.workflows.types.messages import Reply
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.status import Happening
from tests.support.runs.goals import start
from tests.support.runs.loop import WORKER_FACTS, a_worker, check_journal, check_replay, check_tasks, histories_of
from tests.support.scenarios.goals import Author, GoalScenario
from tests.support.scenarios.people import People
from tests.support.scenarios.played import Played, Seen
from tests.support.scenarios.scenario import DENIED, HIDDEN, ToolPlan
from tests.support.scenarios.stage import PATIENCE_S, Judge, Stage


class Askers(People):
    """The people around a goal, who also answer its questions."""

    async def decide(self, wait: ShownQuestion, choice: str) -> None:
        """Answer a question of the model, and decide a question of the loop as planned."""
        if not wait.wait_id.startswith("question-"):
            return await super().decide(wait, choice)
        await self.updated("answer", {"question_id": wait.wait_id, "text": "this one"})
        return None


@dataclass
class GoalStage(Stage):
    """One goal while it is played."""

    author: Author = field(kw_only=True)

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply of the author."""
        info = activity.info()
        await self.people.moment()
        self.seen.append(Seen(info.workflow_run_id or "", int(info.activity_id.partition(".")[0]), request))
        return self.author.reply(request)

    async def pursue(self, *tools: FakeTool) -> tuple[str, GoalResult, GoalStatus]:
        """Start the goal, let people attend to it, and return its id, its result and its last status."""
        handle = await start(self._loop, workflow_id=f"goal-{uuid4()}", **self.scenario.config)
        self._people = Askers(self.scenario, handle)
        await self.people.moment()
        facts = WORKER_FACTS.model_copy(update={"roll_over_events": self.scenario.roll_over_events})
        agents = {"default": AgentConfig(tools=tuple(tool.name for tool in tools), instructions="")}
        worker = a_worker(self._loop, *tools, engine=Judge(), setup=facts, agents=agents)
        async with worker, asyncio.timeout(PATIENCE_S):
            ended = asyncio.create_task(handle.result())
            await self.people.attend(ended)
            result, status = await ended, await handle.query("status")
        return handle.id, GoalResult.model_validate(result), GoalStatus.model_validate(status)


@dataclass(frozen=True)
class PlayedGoal(Played):
    """A finished goal, and everything that was observed of it."""

    result: GoalResult
    status: GoalStatus


async def play_goal(client: Client, scenario: GoalScenario) -> PlayedGoal:
    """Play a goal, replay its histories, check them against the law of the gate, and read its journal."""
    stage = GoalStage(client, scenario, author=Author(scenario))
    plans = [*scenario.tools, ToolPlan(DENIED)]
    tools = {plan.name: stage.tool(plan) for plan in plans} | {HIDDEN: FakeTool(HIDDEN)}
    workflow_id, result, status = await stage.pursue(*(tools[plan.name] for plan in plans))
    happened: list[Happening] = []
    for history in await histories_of(client, workflow_id):
        check_tasks(history)
        await check_replay(history)
        converters = converters_of(client, history)
        happened += [happening async for happening in read_events(converters, history.events)]
    journal = [entry async for entry in read_journal(client, workflow_id)]
    check_journal(journal)
    return PlayedGoal(scenario, result, status, journal, happened, stage.seen, tools, stage.most_in_flight)
