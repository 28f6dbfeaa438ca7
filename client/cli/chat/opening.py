"""The beginning and the end of a chat: the session and a worker for it are there, and how one comes back is told."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shlex import quote

from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from orga.client.cli.ages import age
from orga.client.cli.attach import elsewhere
from orga.client.cli.chat.asked import carry_out
from orga.client.cli.chat.parts import Parts
from orga.client.cli.chat.screen import ChatScreen, PlainChat
from orga.client.cli.chat.source import OneMessage, PipedLines
from orga.client.cli.chat.talk import CLOSING_S, Chat
from orga.client.cli.chat.turn_shown import TurnShown
from orga.client.cli.chat.turns import history_lines
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.live_screen import is_terminal
from orga.client.cli.output import is_hushed, note
from orga.client.cli.quiet_screen import QuietScreen
from orga.client.cli.run import refuse_for_ours, start_and_announce
from orga.client.cli.screen import PlainScreen
from orga.client.cli.session import Session, of_run, session
from orga.client.cli.watching import Watch
from orga.client.config.known_input import refuse_unknown, wanted_by
from orga.client.config.workplace import home_of
from orga.client.errors import NotAnAgent, OrgaError, RunNotFound
from orga.client.runs.named import newest_session
from orga.client.runs.sessions import SessionHandle, start_session
from orga.client.server.pollers import may_be_polled
from orga.client.workers.keeping import WorkerKeeper, kept_worker
from orga.workflows.types.names import RUNS, SESSION_WORKFLOW
from orga.workflows.types.sessions.input import SessionInput
from orga.workflows.types.text import in_full


@dataclass(frozen=True)
class Wish:
    """What a command says of the talk."""

    text: str | None
    """All that is said; None for what is typed or piped."""
    config: Path | None
    history: int
    no_worker: bool
    as_json: bool


async def begin(given: SessionInput, session_id: str, wish: Wish) -> int:
    """Talk in a new session, and return the exit code."""
    wanted = wanted_by(given)
    async with session(wish.config, check=partial(refuse_unknown, wanted)) as here:
        if not wish.no_worker and not await may_be_polled(here.client, here.task_queue):
            refuse_for_ours(wanted, here)
        async with _worker(here, here.task_queue, is_wanted=not wish.no_worker) as keeper:
            await start_and_announce(here, partial(_start, given, session_id), "session")
            talk = _Talk(here, session_id, here.task_queue, keeper, wish, is_new=True)
            return await talk.to_its_end()


async def go_on(named: str, wish: Wish) -> int:
    """Talk in a session that is there, and return the exit code.

    Raises:
        UsageError: It has ended, or the id is that of a run which is no session.
    """
    try:
        async with of_run(named, wish.config, newest_session) as (here, session_id):
            return await _go_on_in(here, session_id, wish)
    except RunNotFound as error:
        if " " in named:
            raise UsageError(f"there is no session {named!r}; to say it: orga chat --say {quote(named)}") from error
        raise


async def _go_on_in(here: Session, session_id: str, wish: Wish) -> int:
    described = await here.run(session_id).describe()
    _refuse_what_is_no_session(described)
    queue = described.task_queue
    if not (is_own := await here.may_work_on(described)) and not await may_be_polled(here.client, queue):
        note(elsewhere(session_id, queue, await home_of(described), "orga chat"))
    async with _worker(here, queue, is_wanted=is_own and not wish.no_worker) as keeper:
        if link := here.connection.link(session_id):
            note(link)
        return await _Talk(here, session_id, queue, keeper, wish).to_its_end()


def _refuse_what_is_no_session(run: WorkflowExecutionDescription) -> None:
    if run.workflow_type not in RUNS:
        raise NotAnAgent(run.id, run.workflow_type)
    if run.workflow_type != SESSION_WORKFLOW:
        raise UsageError(
            f"{in_full(run.id)} is no session but the run of one task; `orga attach {quote(run.id)}` follows it, "
            f"`orga fork {quote(run.id)} --to-iteration N --task TEXT` goes on from it; begin a session with: orga chat"
        )
    if run.status != WorkflowExecutionStatus.RUNNING:
        when = f" {age(run.close_time, datetime.now(UTC))} ago" if run.close_time else ""
        raise UsageError(
            f"session {in_full(run.id)} has ended{when}; `orga journal {quote(run.id)}` shows what was said and done; "
            "a new one begins with: orga chat"
        )


async def _start(given: SessionInput, session_id: str, here: Session) -> str:
    return (await start_session(here.client, given, session_id=session_id)).id


@asynccontextmanager
async def _worker(here: Session, queue: str, *, is_wanted: bool) -> AsyncGenerator[WorkerKeeper | None]:
    if not is_wanted:
        yield None
        return
    async with kept_worker(here.client, here.worker_order(queue), note, here.require_usable) as keeper:
        yield keeper


@dataclass(frozen=True)
class _Talk:
    here: Session
    session_id: str
    queue: str
    keeper: WorkerKeeper | None
    wish: Wish
    is_new: bool = False

    async def to_its_end(self) -> int:
        """Talk, and tell how one comes back."""
        chat = self._chat()
        try:
            await chat.catch_up()
            self._show_past(chat)
            code = await chat.talk()
        except asyncio.CancelledError:
            self._take_leave(chat)
            raise
        except (OrgaError, RPCError, UsageError):
            if self._is_unsaid(chat):
                with suppress(OrgaError, RPCError):  # what is told is why nothing was said
                    await self._close(chat)
            raise
        if self._is_unsaid(chat) and not chat.has_ended:
            await self._close(chat)
        else:
            self._take_leave(chat)
        return code

    def _is_unsaid(self, chat: Chat) -> bool:
        return self.is_new and not chat.has_said and not chat.turns.told

    async def _close(self, chat: Chat) -> None:
        await chat.session.close()
        if self.keeper is not None:  # it leaves with us, and nobody would be there to end the session
            with suppress(TimeoutError, OrgaError, RPCError):
                await asyncio.wait_for(chat.session.result(), CLOSING_S)
        note("nothing was said, so the session is closed")

    def _chat(self) -> Chat:
        handle, wish = SessionHandle(self.here.client, self.session_id), self.wish
        turn_shown = TurnShown(self.session_id, wish.as_json)
        if wish.text is None and sys.stdin.isatty() and is_terminal():
            seen = shown = ChatScreen(turn_shown)
            source, how = seen.keyboard, "typed"
        else:
            seen = QuietScreen() if is_hushed() else PlainScreen()
            shown = PlainChat(seen, turn_shown)
            source, how = (PipedLines(), "piped") if wish.text is None else (OneMessage(wish.text), "one")
        if self.keeper is not None:
            self.keeper.report = seen.note
        watch = Watch(self.here.client, handle, self.queue, seen, self.keeper)
        return Chat(Parts(self.here.client, handle, watch, source, shown, how), carry_out)

    def _show_past(self, chat: Chat) -> None:
        if not chat.turns.told:
            note("/help shows what else can be done here")
        elif self.wish.history:
            note(*history_lines(chat.turns.told[-self.wish.history :], datetime.now(UTC)), "")

    def _take_leave(self, chat: Chat) -> None:
        if self.keeper is not None:
            self.keeper.report = note
        if chat.has_ended:
            note("the session has ended; a new one begins with: orga chat")
            return
        waits = ""
        if chat.is_busy:
            is_ours = self.keeper is not None and self.keeper.own is not None
            waits = "; the turn under way waits for another worker" if is_ours else "; so does the turn under way"
        note(f"the session goes on{waits}. To come back: orga chat {quote(self.session_id)}")
