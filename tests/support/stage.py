"""Plays a scenario on a real server, with a person who answers what the run asks, and keeps all that was seen."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat
from typing import Any

from temporalio import activity
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from activities.ports import Judgement, ModelRequest, Proposal, ToolError
from client.converter import data_converter
from client.history import read_events
from client.journal import read_journal
from tests.support.loop import WORKER_FACTS, FakeTool, Loop, a_worker, check_journal, check_tasks, histories_of
from tests.support.scenarios import DENIED, FETCH, HIDDEN, PROVEN_WORD, TERMINATE, Act, Fate, Scenario, ToolPlan
from workflows.agent import AgentWorkflow
from workflows.types.agents import AgentConfig
from workflows.types.history import Happening
from workflows.types.journal import JournalEntry
from workflows.types.messages import Reply
from workflows.types.result import AgentResult
from workflows.types.status import AgentStatus
from workflows.types.usage import Usage
from workflows.types.waits import Wait

PATIENCE_S = 60.0
LIMITS = ("max_iterations", "max_total_tokens", "max_cost_usd", "max_model_calls", "max_tool_calls", "timeout_s")
PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}}
LINK = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
THE_END = Reply(text="the end", usage=Usage(input_tokens=100, output_tokens=10))
SUMMARY = Reply(text="what was before", usage=Usage(input_tokens=60, output_tokens=5), cost_usd=0.001)


@dataclass(frozen=True)
class Seen:
    """A model call as the provider saw it."""

    run_id: str
    iteration: int
    request: ModelRequest


@dataclass(frozen=True)
class Played:
    """What the outside sees of a scenario that has been played."""

    scenario: Scenario
    result: AgentResult
    status: AgentStatus
    """The last one."""
    journal: list[JournalEntry]
    happened: list[Happening]
    """Of all runs of the chain, oldest first."""
    seen: list[Seen]
    """Reasoning steps, one for each attempt."""
    tools: dict[str, FakeTool]
    most_in_flight: int
    """Tool attempts at the same time."""

    def of(self, event: str) -> list[JournalEntry]:
        """Return the journal's entries of one kind."""
        return [entry for entry in self.journal if entry.event == event]


class Judge:
    """Denies one tool and one word; it breaks down over a third of what it denies."""

    async def judge(self, proposal: Proposal) -> Judgement:
        """Return the decision."""
        if proposal.call is None:
            return Judgement(PROVEN_WORD not in (proposal.answer or ""), "such words are forbidden")
        if proposal.call.name == DENIED and proposal.call.arguments.get("n") == 1:
            raise RuntimeError("the policy engine broke down")
        return Judgement(proposal.call.name != DENIED, "not today")


@dataclass
class Stage:
    """One scenario while it is played."""

    client: Client
    scenario: Scenario
    seen: list[Seen] = field(default_factory=list[Seen])
    most_in_flight: int = 0
    _handle: WorkflowHandle[Any, Any] | None = None
    _moment: int = 0
    _in_flight: int = 0
    _updates: list[asyncio.Task[Any]] = field(default_factory=list[asyncio.Task[Any]])

    def __post_init__(self) -> None:
        """Begin the script."""
        self._loop = Loop(self.client, f"law-{uuid.uuid4()}", self)
        self._script = chain(self.scenario.script, repeat(THE_END))

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Say what the script says next; a summary is always the same."""
        info = activity.info()
        await self._looked_at()
        await self._reached()
        if request.tool_choice == "none":
            return SUMMARY
        self.seen.append(Seen(info.workflow_run_id or "", int(info.activity_id), request))
        step = next(self._script)
        if isinstance(step, Exception):
            raise step
        return step

    def tool(self, plan: ToolPlan) -> FakeTool:
        """Return the tool that goes by this plan."""
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
            await self._reached()
            return await _befallen(next(fates))
        finally:
            self._in_flight -= 1

    async def _looked_at(self) -> None:
        """Look where the run stands while its model thinks: that is answered always."""
        assert self._handle is not None
        with _late():
            AgentStatus.model_validate(await self._handle.query("status"))

    async def _reached(self) -> None:
        """Let people do what they do at this moment."""
        self._moment += 1
        await self._act(self._moment)

    async def _act(self, moment: int) -> None:
        for number, act in enumerate(self.scenario.acts):
            if act.moment == moment:
                await self._send(number, act)

    async def _send(self, number: int, act: Act) -> None:
        match act.kind:
            case "extend_budget":
                self._update("extend_budget", self._raised(act.by))
            case "pause":
                await self._signal("pause")
            case _:
                await self._signal(act.kind, f"{act.kind} {number}")

    def _raised(self, by: int) -> dict[str, float]:
        config = self.scenario.config
        return {name: config[name] + by for name in LIMITS if name in config}

    async def _signal(self, name: str, *arguments: str) -> None:
        assert self._handle is not None
        with _late():
            await self._handle.signal(name, args=list(arguments))

    def _update(self, name: str, argument: Any) -> None:
        """Send an update behind the scenes: whoever sends it from a tool must not wait for the run."""
        self._updates.append(asyncio.create_task(self._updated(name, argument)))

    async def _updated(self, name: str, argument: Any) -> bool:
        """Return whether it was taken."""
        assert self._handle is not None
        while True:
            try:
                await self._handle.execute_update(name, argument)  # pyright: ignore[reportUnknownMemberType]
            except WorkflowUpdateFailedError:
                return False
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return True
                if error.status != RPCStatusCode.FAILED_PRECONDITION:  # the run is continuing as new
                    raise
                continue
            return True

    async def play(self, *tools: FakeTool) -> tuple[str, AgentResult, AgentStatus]:
        """Start the run, be its person, and return its id, its result and its last status once it has ended."""
        scenario = self.scenario
        links = [f"https://a.io/{number}" for number in range(scenario.references)]
        self._handle = handle = await self._loop.start(" ".join(["do it", *links]), **scenario.config)
        await self._act(0)
        facts = WORKER_FACTS.model_copy(update={"roll_over_events": scenario.roll_over_events})
        agents = {"default": AgentConfig(tools=(*(tool.name for tool in tools), TERMINATE), instructions="")}
        async with (
            a_worker(self._loop, *tools, engine=Judge(), setup=facts, agents=agents),
            asyncio.timeout(PATIENCE_S),
        ):
            ended = asyncio.create_task(handle.result())
            await self._person(handle, ended)
            await asyncio.gather(*self._updates)
            result, status = await ended, await handle.query("status")
        return handle.id, AgentResult.model_validate(result), AgentStatus.model_validate(status)

    async def _person(self, handle: WorkflowHandle[Any, Any], ended: asyncio.Task[Any]) -> None:
        """Whenever the run stands still, until it has ended: look why, and give it what it waits for."""
        choices = chain(self.scenario.choices, repeat("skip"))
        requeues = self.scenario.requeues
        while not ended.done():
            await asyncio.sleep(0.02)
            if not await _stands_still(handle):
                continue
            status = AgentStatus.model_validate(await handle.query("status"))
            if status.paused:
                await self._signal("resume")
            for wait in status.waiting:
                await self._decide(wait, next(choices))
            for letter in status.dead_letters[:requeues]:
                requeues -= await self._updated("requeue", letter.letter_id)

    async def _decide(self, wait: Wait, choice: str) -> None:
        """Decide as planned; a choice that this question does not have is refused, and the run is let go on."""
        if wait.kind == "budget" and choice == "extend":
            await self._updated("extend_budget", self._raised(5_000))
            return
        decision = {"escalation_id": wait.wait_id, "choice": choice, "result": f"as {wait.wait_id} wants it"}
        if not await self._updated("resolve_escalation", decision):
            await self._updated("resolve_escalation", {**decision, "choice": "skip"})


async def _stands_still(handle: WorkflowHandle[Any, Any]) -> bool:
    """Return whether nothing is under way.

    A query that comes with a workflow task is answered before what a local activity brought in that task is taken in
    (temporalio 1.35). If more happens at that moment a replay sees it in another order: a person does not ask then.
    """
    found = (await handle.describe()).raw_description
    return not found.pending_activities and not found.HasField("pending_workflow_task")


async def _befallen(fate: Fate) -> str:
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


@contextmanager
def _late() -> Generator[None]:
    """What comes after the run's end is no fault."""
    try:
        yield
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise


async def _each(events: Iterable[HistoryEvent]) -> AsyncGenerator[HistoryEvent]:
    for event in events:
        yield event


async def played(client: Client, scenario: Scenario) -> Played:
    """Play a scenario; replay its histories, read its journal."""
    stage = Stage(client, scenario)
    plans = [*scenario.tools, ToolPlan(DENIED), ToolPlan(HIDDEN)]
    tools = {plan.name: stage.tool(plan) for plan in plans}
    workflow_id, result, status = await stage.play(*tools.values())
    happened: list[Happening] = []
    for history in await histories_of(client, workflow_id):
        check_tasks(history)
        replayer = Replayer(
            workflows=[AgentWorkflow], data_converter=data_converter, workflow_runner=UnsandboxedWorkflowRunner()
        )
        await replayer.replay_workflow(history)
        happened += [happening async for happening in read_events(client, _each(history.events))]
    journal = [entry async for entry in read_journal(client, workflow_id)]
    check_journal(journal)
    return Played(scenario, result, status, journal, happened, stage.seen, tools, stage.most_in_flight)
