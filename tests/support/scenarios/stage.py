"""Plays a scenario on a real server, with people who answer its questions, and keeps all observations."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Replayer

from orga.activities.ports import ModelRequest, ToolError
from orga.client.history.events import read_events
from orga.client.history.values import converters_of, data_converter
from orga.client.journal.reading import read_journal
from orga.testing import FakeTool
from orga.workflows.agent import AgentWorkflow
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.status import AgentResult, AgentStatus, Happening
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.runs.loop import WORKER_FACTS, Loop, a_worker, check_journal, check_tasks, histories_of
from tests.support.runs.queried import being_looked_at
from tests.support.scenarios.people import People
from tests.support.scenarios.played import Played, Seen
from tests.support.scenarios.scenario import DENIED, FETCH, HIDDEN, PROVEN_WORD, TERMINATE, Fate, Scenario, ToolPlan
from tests.support.values.policies import a_verdict

PATIENCE_S = 60.0
PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}}
LINK = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
THE_END = Reply.of("the end", usage=Usage(input_tokens=100, output_tokens=10))
SUMMARY = Reply.of("what was before", usage=Usage(input_tokens=60, output_tokens=5), cost_usd=0.001)


class Judge:
    """Denies one tool and one word, and fails on a third of what it denies."""

    is_embedded = True

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Return the verdict."""
        if proposal.call is None:
            return a_verdict(PROVEN_WORD not in (proposal.answer or ""), "such words are forbidden")
        if proposal.call.name == DENIED and proposal.call.arguments.get("n") == 1:
            raise RuntimeError("the policy engine broke down")
        return a_verdict(proposal.call.name != DENIED, "not today")


@dataclass
class Stage:
    """One scenario while it is played."""

    client: Client
    scenario: Scenario
    is_looked_at: bool = False
    """True if its status is queried all the time."""
    seen: list[Seen] = field(default_factory=list[Seen])
    most_in_flight: int = 0
    _people: People | None = None
    _in_flight: int = 0

    def __post_init__(self) -> None:
        """Start the script."""
        self._loop = Loop(self.client, f"law-{uuid.uuid4()}", self)
        self._script = chain(self.scenario.script, repeat(THE_END))

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply of the script. A summary is always the same."""
        info = activity.info()
        await self.people.look()
        await self.people.moment()
        if request.tool_choice == "none":
            return SUMMARY
        self.seen.append(Seen(info.workflow_run_id or "", int(info.activity_id), request))
        step = next(self._script)
        if isinstance(step, Exception):
            raise step
        return step

    def tool(self, plan: ToolPlan) -> FakeTool:
        """Return the tool with this plan."""
        fates = cycle(plan.fates)
        return FakeTool(
            plan.name,
            lambda arguments, context: self._attempt(fates),
            effect=plan.effect,
            parameters=LINK if plan.name == FETCH else PARAMETERS,
            options=plan.options,
        )

    async def _attempt(self, fates: Iterator[Fate]) -> str:
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            await self.people.moment()
            return await _attempt_result(next(fates))
        finally:
            self._in_flight -= 1

    @property
    def people(self) -> People:
        """The people, once the run is started."""
        assert self._people is not None
        return self._people

    async def play(self, *tools: FakeTool) -> tuple[str, AgentResult, AgentStatus]:
        """Start the run, let people attend to it, and return its id, its result and its last status."""
        scenario = self.scenario
        links = [f"https://a.io/{number}" for number in range(scenario.references)]
        handle = await self._loop.start(" ".join(["do it", *links]), **scenario.config)
        self._people = People(scenario, handle)
        await self.people.moment()
        facts = WORKER_FACTS.model_copy(update={"roll_over_events": scenario.roll_over_events})
        agents = {"default": AgentConfig(tools=(*(tool.name for tool in tools), TERMINATE), instructions="")}
        async with (
            a_worker(self._loop, *tools, engine=Judge(), setup=facts, agents=agents),
            asyncio.timeout(PATIENCE_S),
        ):
            ended = asyncio.create_task(handle.result())
            async with being_looked_at(self.client, handle.id) if self.is_looked_at else nullcontext():
                await self.people.attend(ended)
            result, status = await ended, await handle.query("status")
        return handle.id, AgentResult.model_validate(result), AgentStatus.model_validate(status)


async def _attempt_result(fate: Fate) -> str:
    match fate:
        case "ok":
            return "fine"
        case "big":
            return "b" * 3_000
        case "final":
            raise ToolError("there is no such thing")
        case "retryable":
            raise ToolError("not yet", retryable=True)
        case "crash":
            raise RuntimeError("a defect")
        case "slow":
            await asyncio.sleep(60)
            return "late"


async def play_scenario(client: Client, scenario: Scenario, *, is_looked_at: bool = False) -> Played:
    """Play a scenario, replay its histories, and read its journal."""
    stage = Stage(client, scenario, is_looked_at)
    plans = [*scenario.tools, ToolPlan(DENIED), ToolPlan(HIDDEN)]
    tools = {plan.name: stage.tool(plan) for plan in plans}
    workflow_id, result, status = await stage.play(*tools.values())
    happened: list[Happening] = []
    for history in await histories_of(client, workflow_id):
        check_tasks(history)
        replayer = Replayer(workflows=[AgentWorkflow], data_converter=data_converter)
        await replayer.replay_workflow(history)
        converters = converters_of(client, history)
        happened += [happening async for happening in read_events(converters, history.events)]
    journal = [entry async for entry in read_journal(client, workflow_id)]
    check_journal(journal)
    return Played(scenario, result, status, journal, happened, stage.seen, tools, stage.most_in_flight)
