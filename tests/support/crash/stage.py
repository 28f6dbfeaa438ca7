"""Plays a run whose workers die one after the other, until one survives."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, repeat
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from orga.testing import FakeTool, ScriptedModel
from orga.workflows.types.questions import NotifyEvent
from tests.support.crash.worker import Backstage, Cast, CrashWorker, Fate
from tests.support.hold import wait_until
from tests.support.runs.loop import Loop, Ran

PATIENCE = timedelta(seconds=150)
TASK_TIMEOUT = timedelta(seconds=5)
"""Seconds after which the server takes a workflow task back from a dead worker."""

NEVER = 3_500
EVERY_ITERATION = 1
SHORT = ("look", "note", "send")

Happens = Callable[["Stage"], Awaitable[None]]


def all_tools(backstage: Backstage) -> list[FakeTool]:
    """Return a tool of each effect."""
    return [
        backstage.tool("look", "read_only"),
        backstage.tool("note", "idempotent"),
        backstage.tool("send", "irreversible"),
    ]


async def nothing(stage: "Stage") -> None:
    """Do nothing to the run."""


@dataclass(frozen=True)
class Case:
    """A run, what happens to it from outside, and how its workers die."""

    plan: tuple[str, ...] = SHORT
    fates: tuple[Fate, ...] = ()
    roll_over_events: int = NEVER
    cast: Cast = all_tools
    happens: Happens = nothing
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    notify: tuple[NotifyEvent, ...] = ()
    kills: bool = False
    """True if `Stage.deserted` kills the worker. The others are compared with a case that is not killed."""


def dying_at(moment: str, **fields: Any) -> Case:
    """Return a run whose first worker dies at that moment."""
    return Case(fates=(Fate(moment),), **fields)


@dataclass(frozen=True)
class Outcome:
    """The traces of a run that has ended."""

    ran: Ran
    effects: list[list[str]]
    """Tool and idempotency key, one a line."""
    exits: list[int | None]
    """Exit codes of the workers before the last one."""
    notified: list[str]
    """The ids of the messages that a receiver got."""
    folder: Path
    """The folder in which its workers kept their files."""

    @property
    def tools(self) -> list[str]:
        """The tools in the order of their effects."""
        return [tool for tool, _ in self.effects]

    @property
    def output(self) -> list[str]:
        """The lines that the model read."""
        return (self.ran.result.output or "").splitlines()

    @property
    def journal(self) -> list[tuple[str, int, dict[str, Any]]]:
        """The journal without times and hashes."""
        return [
            (entry.event, entry.iteration, {key: value for key, value in entry.data.items() if key != "duration_s"})
            for entry in self.ran.journal
        ]

    def data(self, event: str) -> list[dict[str, Any]]:
        """Return the data of all journal entries of one event."""
        return [data for name, _, data in self.journal if name == event]


Outcomes = Mapping[str, Outcome | BaseException]


def outcome_of(outcomes: Outcomes, case: str) -> Outcome:
    outcome = outcomes[case]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


async def play_all(client: Client, cases: Mapping[str, Case], folder: Callable[[str], Path]) -> Outcomes:
    """Play all cases at once, because they mostly wait until the server gives up on a dead worker."""
    played = [_play(client, case, folder) for case in cases.values()]
    return dict(zip(cases, await asyncio.gather(*played, return_exceptions=True), strict=True))


async def _play(client: Client, case: Case, folder: Callable[[str], Path]) -> Outcome:
    """Play a case. If its machine stood still for as long as a dead worker, one without a kill is played once more."""
    outcome = await Stage(client, case, folder("crash")).play()
    if case.fates or case.kills or not had_silence(outcome.ran):
        return outcome
    return await Stage(client, case, folder("crash")).play()


def had_silence(ran: Ran) -> bool:
    """Return whether the server took an activity back, because its worker had been silent."""
    for event in chain.from_iterable(history.events for history in ran.histories):
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            return True
        if event.activity_task_started_event_attributes.last_failure.HasField("timeout_failure_info"):
            return True
    return False


class Stage:
    """One case, with its own task queue and its own file of effects."""

    def __init__(self, client: Client, case: Case, folder: Path) -> None:
        self._client = client
        self._case = case
        self._folder = folder
        self._exits: list[int | None] = []
        self._now: BaseProcess | None = None
        self._is_open = asyncio.Event()
        self._is_open.set()

    @property
    def client(self) -> Client:
        """The client for queries and signals of the test."""
        return self._client

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(f"agent-{self._folder.name}")

    @property
    def effects(self) -> list[list[str]]:
        """The effects so far."""
        file = self._folder / "effects"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def messages(self) -> list[str]:
        """The messages so far."""
        file = self._folder / "notified"
        return file.read_text().splitlines() if file.exists() else []

    async def play(self) -> Outcome:
        """Run the case to its end. The last worker survives."""
        await self._start()
        workers = asyncio.create_task(self._work())
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await self._case.happens(self)
                ran = await Loop(self._client, self._folder.name, ScriptedModel([], repeats=True)).ended(self.handle)
        finally:
            workers.cancel()
            if self._now is not None:
                self._now.kill()
        return Outcome(ran, self.effects, self._exits, self.messages, self._folder)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition, for as long as dying workers may need."""
        await wait_until(condition, PATIENCE.total_seconds())

    async def had_effect(self, tool: str) -> None:
        """Wait until a tool has had its effect."""

        async def had() -> bool:
            return tool in [name for name, _ in self.effects]

        await self.until(had)

    def release(self) -> None:
        """Release the held calls."""
        (self._folder / "release").touch()

    @asynccontextmanager
    async def without_worker(self) -> AsyncGenerator[None]:
        """Kill the worker, and start no other before the block ends. Does so only if the case kills."""
        if self._case.kills:
            self._is_open.clear()
            died = len(self._exits)
            if self._now is not None:
                self._now.kill()
            await self.until(lambda: self._have_died(died + 1))
        try:
            yield
        finally:
            self._is_open.set()

    @asynccontextmanager
    async def without_next_worker(self) -> AsyncGenerator[None]:
        """Start no other worker after this one has died by itself. Does so only if it is to die."""
        self._is_open.clear()
        await self.until(lambda: self._have_died(len(self._case.fates)))
        try:
            yield
        finally:
            self._is_open.set()

    async def _have_died(self, number: int) -> bool:
        return len(self._exits) >= number

    async def _start(self) -> None:
        await self._client.start_workflow(
            "AgentWorkflow",
            {"task": " ".join(self._case.plan), "config": {"recovery": {"max_attempts": 10}, **self._case.config}},
            id=self.handle.id,
            task_queue=self._folder.name,
            execution_timeout=PATIENCE,
            task_timeout=TASK_TIMEOUT,
        )

    async def _work(self) -> None:
        """Keep one worker running, and start the next when it dies."""
        for fate in chain(self._case.fates, repeat(Fate())):
            await self._is_open.wait()
            self._now = self._worker(fate).started()
            while self._now.exitcode is None:
                await asyncio.sleep(0.05)
            self._exits.append(self._now.exitcode)

    def _worker(self, fate: Fate) -> CrashWorker:
        address = self._client.service_client.config.target_host
        effects = self._folder / "effects"
        case = self._case
        remembers = "knowledge" in case.config
        known = (address, self._folder.name, effects, case.roll_over_events, fate, case.cast, case.notify)
        return CrashWorker(*known, remembers=remembers)


ONE_RUN_KEYS = {"id", "approval_id", "idempotency_key", "expires_at"}
"""Keys of a journal whose values are bound to one run or its time."""


def comparable_journal(outcome: Outcome) -> list[Any]:
    """Return the journal without what differs between runs: times, and ids that are bound to the run."""
    return [(event, iteration, _of_any_run(data)) for event, iteration, data in outcome.journal]


def _of_any_run(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {key: _of_any_run(inner) for key, inner in pairs if key not in ONE_RUN_KEYS}
    return value


async def are_sent(stage: Stage, *sent: asyncio.Task[Any]) -> bool:
    """Return whether the server has the updates. Without a worker they wait, together with a workflow task."""
    is_done = all(each.done() for each in sent)
    return is_done or (await stage.handle.describe()).raw_description.HasField("pending_workflow_task")
