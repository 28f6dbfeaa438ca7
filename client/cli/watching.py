"""Following a run to its end: journal, activities in flight, status and workers come together on a screen."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from orga.client.cli.answering import Answering
from orga.client.cli.line import Line
from orga.client.cli.live_screen import LiveScreen, is_terminal
from orga.client.cli.narration import Narrator
from orga.client.cli.nesting import INDENT, Nesting, run_of
from orga.client.cli.output import is_hushed
from orga.client.cli.progress import Progress
from orga.client.cli.quiet_screen import QuietScreen
from orga.client.cli.screen import PlainScreen, Screen
from orga.client.config.workplace import home_of, worker_command
from orga.client.errors import OrgaError
from orga.client.journal.events import LiveActivity, RunEvent
from orga.client.runs.agents import AgentHandle
from orga.client.server.pollers import may_be_polled
from orga.client.workers.keeping import WorkerKeeper
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.status import AgentResult, AgentStatus, JournalEntry

STATUS_S = 2.0
POLLERS_S = 1.5
OFFERS_S = 0.2
MISSES = 2
"""Looks without a worker, after which a viewer is told: one that is being replaced is no news."""


class Watch:
    """Follows one run."""

    def __init__(
        self, client: Client, run: AgentHandle, task_queue: str, screen: Screen, keeper: WorkerKeeper | None = None
    ) -> None:
        self._client = client
        self._run = run
        self._screen = screen
        self._keeper = keeper
        self._progress = Progress(run_id=run.id, task_queue=task_queue)
        self._misses = 0
        self._lacks_server = False
        self._answering = Answering(client, screen)

    async def to_the_end(self) -> AgentResult:
        """Show the run until it ends and return its result.

        Raises:
            RunFailed: It has none.
        """
        async with self.beside():
            await self._journal()
        return await self._run.result()

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """Look at what the journal does not tell, and keep the screen open, to the end of the block."""
        beside = [
            asyncio.create_task(_again_and_again(look, pause_s))
            for look, pause_s in (
                (self._status, STATUS_S),
                (self._pollers, POLLERS_S),
                (self._offer_answers, OFFERS_S),
            )
        ]
        try:
            yield
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            self._screen.close()

    def take(self, event: RunEvent) -> None:
        """Show where the run is after this event."""
        if isinstance(event, JournalEntry):
            self._show(self._progress.with_entry(event))
        elif event.run == self._run.id:
            self._show(self._progress.with_activity(event, datetime.now(UTC)))

    async def _journal(self) -> None:
        narrators, nesting = defaultdict[str, Narrator](Narrator), Nesting()
        async for event in self._run.events():
            if isinstance(event, LiveActivity):
                self.take(event)
                continue
            run, indent = run_of(event), INDENT * nesting.depth(event)
            if not run and self._progress.is_next(event):
                self._screen.told(Line(f"iteration {event.iteration}", "person"), event.timestamp)
            self.take(event)
            for line in narrators[run].tell(event):
                if line.tone != "quiet" and not _is_told_at_the_end(event):
                    self._screen.told(replace(line, text=indent + line.text), event.timestamp)

    async def _describe(self) -> WorkflowExecutionDescription:
        """Return what the server says of the run; that it is away, and back, is told once."""
        try:
            described = await self._run.describe()
        except OrgaError as error:
            if not self._lacks_server and _is_away(error):
                self._lacks_server = True
                self._screen.note("the Temporal server does not answer: waiting for it")
            raise
        if self._lacks_server:
            self._lacks_server = False
            self._screen.note("the Temporal server answers again")
        return described

    async def _status(self) -> None:
        if not self._progress.lacks_worker and self._progress.agent:
            status = await self._run.status()
            if status.phase != "preparing":  # before that, the limits are not those of its agent yet
                below = tuple([each async for each in self._below(status)])
                self._show(replace(self._progress.with_status(status, datetime.now(UTC)), below=below))

    async def _below(self, status: AgentStatus) -> AsyncGenerator[tuple[str, AgentStatus]]:
        """Yield where the delegated runs stand: one of them may wait for a person while nobody looks at it."""
        for child in status.children:
            with suppress(OrgaError):  # it may have ended meanwhile, or not begun
                its_own = await AgentHandle(self._client, child.workflow_id).status()
                yield child.workflow_id, its_own
                async for deeper in self._below(its_own):
                    yield deeper

    async def _pollers(self) -> None:
        described = await self._describe()
        there = await may_be_polled(self._client, self._progress.task_queue)
        self._misses = 0 if there else self._misses + 1
        if self._misses == 1:
            command = worker_command(await home_of(described))
            self._progress = replace(self._progress, worker_command=command)
        starts = self._keeper is not None and self._keeper.is_at_it
        self._show(replace(self._progress, lacks_worker=self._misses >= MISSES, starts_worker=starts))

    async def _offer_answers(self) -> None:
        await self._answering.offer(self._questions)

    def _questions(self) -> dict[tuple[str, str], ShownQuestion]:
        return self._progress.questions()

    def _show(self, progress: Progress) -> None:
        self._progress = progress
        self._screen.frame(progress)


def screen() -> Screen:
    """Return the screen that fits stderr."""
    if is_hushed():
        return QuietScreen()
    return LiveScreen() if is_terminal() else PlainScreen()


def _is_away(error: OrgaError) -> bool:
    cause = error.__cause__
    return isinstance(cause, RPCError) and cause.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED}


def _is_told_at_the_end(entry: JournalEntry) -> bool:
    """Return whether this is the refusal with which the command itself ends."""
    is_refusal = str(entry.data.get("detail", "")).startswith("InvalidInput")
    return entry.event == "Terminated" and is_refusal and not run_of(entry)


async def _again_and_again(look: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """Look until cancelled; one look that fails is no reason to stop."""
    while True:
        with suppress(RPCError, OrgaError):
            await look()
        await asyncio.sleep(pause_s)
