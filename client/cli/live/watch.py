"""Follows a run to its end, and shows its journal, pending calls, status, workers and answer on a screen."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from orga.activities.text.characters import harmless_text
from orga.client.cli.connection import CliContext
from orga.client.cli.exit_codes import ending_exit_code
from orga.client.cli.live.screens import LiveScreen, PlainScreen, QuietScreen, Screen, is_terminal
from orga.client.cli.options import login_name
from orga.client.cli.shown.narration import INDENT, entry_lines
from orga.client.cli.shown.progress import DelegateStatus, Progress, QuestionKey
from orga.client.cli.shown.status_text import as_goal_result
from orga.client.cli.shown.text import (
    StyledLine,
    count_text,
    is_quiet,
    terminal_line,
    write_document,
    write_json,
    write_note,
    write_warning,
)
from orga.client.errors import OrgaError
from orga.client.journal import event_types as on
from orga.client.journal.run_view import RunView, ViewedEntry
from orga.client.journal.watcher import LiveActivity
from orga.client.runs.agents import AgentHandle
from orga.client.runs.needed_worker import needed_worker
from orga.client.server.versions import may_be_served
from orga.client.workers.process import WorkerKeeper
from orga.workflows.decisions.result import usage_text
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.sessions.session_result import TurnResult
from orga.workflows.types.status import AgentResult, AgentStatus

if TYPE_CHECKING:
    from markdown_it.token import Token

_ANSWERED_LOOK_S = 0.2
"""Seconds between two checks whether somebody else has answered the question."""

OpenQuestions = Callable[[], Mapping[QuestionKey, ShownQuestion]]
"""Returns the questions that are open now."""


class QuestionPrompter:
    """Lets the person answer each question once. A question that is left open can also be answered elsewhere."""

    def __init__(self, client: Client, screen: Screen) -> None:
        self._client = client
        self._screen = screen
        self._offered = set[QuestionKey]()

    async def offer(self, open_questions: OpenQuestions) -> None:
        """Let the person answer new questions. A refused answer can be typed again."""
        for key, wait in open_questions().items():
            if key not in self._offered:
                self._offered.add(key)
                if text := (await self._read_answer(key, wait, open_questions)).strip():
                    await self._answer(key, text)

    async def _read_answer(self, key: QuestionKey, wait: ShownQuestion, open_questions: OpenQuestions) -> str:
        """Return the typed text; "" once somebody else has answered."""
        typing = asyncio.create_task(self._screen.read_answer(wait))
        try:
            while not typing.done():
                await asyncio.wait({typing}, timeout=_ANSWERED_LOOK_S)
                if not typing.done() and key not in open_questions():
                    return ""
            return typing.result()
        finally:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)  # the task restores the terminal before it ends

    async def _answer(self, key: QuestionKey, text: str) -> None:
        try:
            await AgentHandle(self._client, key.run_id).answer(text, key.question_id, login_name())
        except OrgaError as error:
            self._screen.note(f"not answered: {terminal_line(str(error), 300)}")
            self._offered.discard(key)


STATUS_S, POLLERS_S, OFFERS_S = 2.0, 1.5, 0.2
"""Seconds between two looks at the run's status, at its workers, and for new questions."""

MAX_MISSES = 2
"""Looks in a row without a worker before this is shown. While a worker is replaced, none polls for a moment."""


class Watch:
    """Shows one run on a screen."""

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
        self._prompter = QuestionPrompter(client, screen)

    async def follow_to_end(self) -> AgentResult:
        """Show the run until it ends and return its result. Raise RunFailed if it has none."""
        async with self.refreshing():
            await self._show_journal()
        return await self._run.result()

    @asynccontextmanager
    async def refreshing(self) -> AsyncGenerator[None]:
        """Within the block, refresh status, workers and questions, and keep the screen open."""

        def open_questions() -> Mapping[QuestionKey, ShownQuestion]:
            return self._progress.open_questions()

        looks = [
            asyncio.create_task(_repeat(look, pause_s))
            for look, pause_s in (
                (self._update_status, STATUS_S),
                (self._update_pollers, POLLERS_S),
                (partial(self._prompter.offer, open_questions), OFFERS_S),
            )
        ]
        try:
            yield
        finally:
            for task in looks:
                task.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
            self._screen.close()

    def show_event(self, event: ViewedEntry | LiveActivity) -> None:
        if isinstance(event, ViewedEntry):
            self._show(self._progress.with_entry(event))
        elif event.run == self._run.id:
            self._show(self._progress.with_activity(event, datetime.now(UTC)))

    async def _show_journal(self) -> None:
        view = RunView()
        async for event in self._run.events():
            if isinstance(event, LiveActivity):
                self.show_event(event)
                continue
            viewed = view.take(event)
            if viewed.begins_iteration and not event.run:
                self._screen.show_line(StyledLine(f"iteration {event.iteration}", "person"), event.timestamp)
            self.show_event(viewed)
            if _is_invalid_input(viewed):  # the command itself reports it when it ends
                continue
            for line in entry_lines(viewed):
                if line.tone != "quiet":
                    shown = replace(line, text=INDENT * viewed.run.depth + line.text)
                    self._screen.show_line(shown, event.timestamp)

    async def _describe(self) -> WorkflowExecutionDescription:
        """Return the server's description of the run. A lost and a regained server are each reported once."""
        try:
            described = await self._run.describe()
        except OrgaError as error:
            if not self._lacks_server and _is_server_away(error):
                self._lacks_server = True
                self._screen.note("the Temporal server does not answer: waiting for it")
            raise
        if self._lacks_server:
            self._lacks_server = False
            self._screen.note("the Temporal server answers again")
        return described

    async def _update_status(self) -> None:
        has_begun = bool(self._progress.agent)  # the first entry of the journal names it
        if has_begun and not self._progress.lacks_worker:
            status = await self._run.status()
            if status.phase != "preparing":  # until the run has prepared, its limits are not known
                delegates = tuple([each async for each in self._delegate_statuses(status)])
                self._show(replace(self._progress.with_status(status, datetime.now(UTC)), delegates=delegates))

    async def _delegate_statuses(self, status: AgentStatus) -> AsyncGenerator[DelegateStatus]:
        """Yield the status of each delegated run. A delegate may wait for a person, and nobody else follows it."""
        for child in status.children:
            with suppress(OrgaError):  # the delegate may have ended by now, or not begun
                child_status = await AgentHandle(self._client, child.workflow_id).status()
                yield DelegateStatus(child.workflow_id, child_status)
                async for descendant in self._delegate_statuses(child_status):
                    yield descendant

    async def _update_pollers(self) -> None:
        described = await self._describe()
        self._misses = 0 if await may_be_served(self._client, described) else self._misses + 1
        if self._misses == 1:
            self._progress = replace(self._progress, needed_worker=await needed_worker(described))
        starts = self._keeper is not None and self._keeper.is_keeping
        self._show(replace(self._progress, lacks_worker=self._misses >= MAX_MISSES, starts_worker=starts))

    def _show(self, progress: Progress) -> None:
        self._progress = progress
        self._screen.show_progress(progress)


def _is_invalid_input(viewed: ViewedEntry) -> bool:
    """Return whether the followed run ended because its input is invalid."""
    event = viewed.event
    return isinstance(event, on.Terminated) and not event.run and event.detail.startswith("InvalidInput")


def build_screen() -> Screen:
    if is_quiet():
        return QuietScreen()
    return LiveScreen() if is_terminal() else PlainScreen()


def _is_server_away(error: OrgaError) -> bool:
    cause = error.__cause__
    return isinstance(cause, RPCError) and cause.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED}


async def _repeat(look: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """Look until cancelled. A failed look does not end the loop."""
    while True:
        with suppress(RPCError, OrgaError):
            await look()
        await asyncio.sleep(pause_s)


def show_answer(text: str) -> None:
    """Write the answer. On a terminal its Markdown is rendered. A pipe or a file gets the text as it is."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in {"", "dumb"}:
        write_document(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    rendered = Markdown(harmless_text(text), hyperlinks=False)  # so the address of a link is visible
    _disarm(rendered.parsed)
    Console(markup=False, highlight=False, emoji=False).print(rendered)


def _disarm(tokens: "Iterable[Token]") -> None:
    """Remove characters that a terminal acts on. They appear when Markdown decodes an entity such as `&#27;`."""
    for token in tokens:
        token.content = harmless_text(token.content)
        token.info = harmless_text(token.info)
        token.attrs = {
            name: harmless_text(value) if isinstance(value, str) else value for name, value in token.attrs.items()
        }
        _disarm(token.children or ())


async def follow(
    context: CliContext, run_id: str, task_queue: str, keeper: WorkerKeeper | None, *, as_json: bool
) -> int:
    """Show the run to its end and return the exit code. A worker of `keeper` ends with this command."""
    screen = build_screen()
    if keeper is not None:
        keeper.report = screen.note
    try:
        result = await Watch(context.client, context.run(run_id), task_queue, screen, keeper).follow_to_end()
    except asyncio.CancelledError:
        write_warning(_detached_text(run_id, keeper))
        raise
    finally:
        if keeper is not None:
            keeper.report = write_note
    return show_ending(result, as_json=as_json)


def _detached_text(run_id: str, keeper: WorkerKeeper | None) -> str:
    if keeper is not None and keeper.own is not None:
        state = "our worker finishes its calls (Ctrl-C again: do not wait), then the run waits for another worker"
    else:
        state = "the run continues while a worker polls"
    return f"detached: {state}. To come back: orga attach {quote(run_id)}"


def show_ending(result: AgentResult, *, as_json: bool) -> int:
    if as_json:
        write_json(result.model_dump(mode="json"))
    elif result.output:
        show_answer(result.output)
    code = ending_exit_code(result.termination.reason)
    write = write_warning if code else write_note
    write(result_facts(result))
    return code


def result_facts(result: AgentResult | TurnResult) -> str:
    """Return reason, iterations, tools, tokens, cost and time in one line, and a goal's confidence."""
    counts = result.tool_calls
    detail = f" ({terminal_line(result.termination.detail, 600)})" if result.termination.detail else ""
    refused = f", {counts.denied} denied" if counts.denied else ""
    failed = f", {counts.failed} failed" if counts.failed else ""
    return (
        f"{result.termination.reason}{detail}: {count_text(result.iterations, 'iteration')}, "
        f"{count_text(counts.run, 'tool call')}{refused}{failed}, {usage_text(result.usage)}, "
        f"{result.duration_s:.1f} s{_confidence_text(result)}"
    )


def _confidence_text(result: AgentResult | TurnResult) -> str:
    goal = as_goal_result(result)
    if goal is None:
        return ""
    done = sum(step.status == "done" for step in goal.steps)
    return f"; confidence {goal.confidence:.2f}, {done} of {count_text(len(goal.steps), 'step')} done"
