"""`orga chat`: starts a session or continues one."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from orga.client.cli.chat.screen import ChatScreen, PlainChat, TurnPrinter
from orga.client.cli.chat.source import ChatParts, OneMessage, PipedLines
from orga.client.cli.chat.talk import CLOSING_S, Chat, carry_out
from orga.client.cli.chat.turns import history_lines
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.live.screens import PlainScreen, QuietScreen
from orga.client.cli.live.terminal import is_terminal
from orga.client.cli.live.watch import Watch
from orga.client.cli.options import (
    AgentName,
    ConfigFile,
    Instructions,
    Model,
    NoWorker,
    Quiet,
    Settings,
    Tools,
    TrustedFacts,
    task_text,
)
from orga.client.cli.session import CliContext, cli_context, run_context
from orga.client.cli.shown import text as output
from orga.client.cli.shown.text import age, is_quiet, write_note
from orga.client.cli.start.run import other_folder_hint, refuse_for_own_worker, start_and_announce
from orga.client.cli.start.task_input import RunOptions, session_input
from orga.client.config.known_input import refuse_unknown, requested_names
from orga.client.config.workplace import recorded_workplace
from orga.client.errors import NotAnAgent, OrgaError, RunNotFound
from orga.client.runs.named import newest_session
from orga.client.runs.sessions import SessionHandle, session_id_of, start_session
from orga.client.server.pollers import may_be_polled
from orga.client.workers.at_hand import WorkerKeeper, keep_worker
from orga.workflows.types.names import RUN_WORKFLOWS, SESSION_WORKFLOW
from orga.workflows.types.sessions.input import SessionInput
from orga.workflows.types.text import clean_text, full_field_text


@dataclass(frozen=True)
class ChatOptions:
    """What a command says of the talk."""

    text: str | None
    """All that is said; None for what is typed or piped."""
    config: Path | None
    history: int
    no_worker: bool
    as_json: bool


async def begin_chat(given: SessionInput, session_id: str, wish: ChatOptions) -> int:
    """Talk in a new session, and return the exit code."""
    wanted = requested_names(given)
    async with cli_context(wish.config, check=partial(refuse_unknown, wanted)) as here:
        if not wish.no_worker and not await may_be_polled(here.client, here.task_queue):
            refuse_for_own_worker(wanted, here)
        async with _optional_worker(here, here.task_queue, is_wanted=not wish.no_worker) as keeper:
            await start_and_announce(here, partial(_start_new_session, given, session_id), "session")
            talk = _TerminalChat(here, session_id, here.task_queue, keeper, wish, is_new=True)
            return await talk.to_its_end()


async def continue_chat(named: str, wish: ChatOptions) -> int:
    """Talk in a session that is there, and return the exit code.

    Raises:
        UsageError: It has ended, or the id is that of a run which is no session.
    """
    try:
        async with run_context(named, wish.config, newest_session) as (here, session_id):
            return await _continue_in_session(here, session_id, wish)
    except RunNotFound as error:
        if " " in named:
            raise UsageError(f"there is no session {named!r}; to say it: orga chat --say {quote(named)}") from error
        raise


async def _continue_in_session(here: CliContext, session_id: str, wish: ChatOptions) -> int:
    described = await here.run(session_id).describe()
    _require_open_session(described)
    queue = described.task_queue
    if not (is_own := await here.may_work_on(described)) and not await may_be_polled(here.client, queue):
        write_note(other_folder_hint(session_id, queue, await recorded_workplace(described), "orga chat"))
    async with _optional_worker(here, queue, is_wanted=is_own and not wish.no_worker) as keeper:
        if link := here.connection.link(session_id):
            write_note(link)
        return await _TerminalChat(here, session_id, queue, keeper, wish).to_its_end()


def _require_open_session(run: WorkflowExecutionDescription) -> None:
    if run.workflow_type not in RUN_WORKFLOWS:
        raise NotAnAgent(run.id, run.workflow_type)
    if run.workflow_type != SESSION_WORKFLOW:
        raise UsageError(
            f"{full_field_text(run.id)} is no session but the run of one task; `orga attach "
            f"{quote(run.id)}` follows it, "
            f"`orga fork {quote(run.id)} --to-iteration N --task TEXT` goes on from it; begin a session with: orga chat"
        )
    if run.status != WorkflowExecutionStatus.RUNNING:
        when = f" {age(run.close_time, datetime.now(UTC))} ago" if run.close_time else ""
        raise UsageError(
            f"session {full_field_text(run.id)} has ended{when}; `orga journal {quote(run.id)}` "
            "shows what was said and done; "
            "a new one begins with: orga chat"
        )


async def _start_new_session(given: SessionInput, session_id: str, here: CliContext) -> str:
    return (await start_session(here.client, given, session_id=session_id)).id


@asynccontextmanager
async def _optional_worker(here: CliContext, queue: str, *, is_wanted: bool) -> AsyncGenerator[WorkerKeeper | None]:
    if not is_wanted:
        yield None
        return
    async with keep_worker(here.client, here.worker_order(queue), write_note, here.require_usable) as keeper:
        yield keeper


@dataclass(frozen=True)
class _TerminalChat:
    here: CliContext
    session_id: str
    queue: str
    keeper: WorkerKeeper | None
    wish: ChatOptions
    is_new: bool = False

    async def to_its_end(self) -> int:
        """Talk, and tell how one comes back."""
        chat = self._build_chat()
        try:
            await chat.catch_up()
            self._show_past(chat)
            code = await chat.talk()
        except asyncio.CancelledError:
            self._show_way_back(chat)
            raise
        except (OrgaError, RPCError, UsageError):
            if self._is_without_message(chat):
                with suppress(OrgaError, RPCError):  # what is told is why nothing was said
                    await self._close(chat)
            raise
        if self._is_without_message(chat) and not chat.has_ended:
            await self._close(chat)
        else:
            self._show_way_back(chat)
        return code

    def _is_without_message(self, chat: Chat) -> bool:
        return self.is_new and not chat.has_said and not chat.turns.told

    async def _close(self, chat: Chat) -> None:
        await chat.session.close()
        if self.keeper is not None:  # it leaves with us, and nobody would be there to end the session
            with suppress(TimeoutError, OrgaError, RPCError):
                await asyncio.wait_for(chat.session.result(), CLOSING_S)
        write_note("nothing was said, so the session is closed")

    def _build_chat(self) -> Chat:
        handle, wish = SessionHandle(self.here.client, self.session_id), self.wish
        turn_shown = TurnPrinter(self.session_id, wish.as_json)
        if wish.text is None and sys.stdin.isatty() and is_terminal():
            seen = shown = ChatScreen(turn_shown)
            source, how = seen.keyboard, "typed"
        else:
            seen = QuietScreen() if is_quiet() else PlainScreen()
            shown = PlainChat(seen, turn_shown)
            source, how = (PipedLines(), "piped") if wish.text is None else (OneMessage(wish.text), "one")
        if self.keeper is not None:
            self.keeper.report = seen.note
        watch = Watch(self.here.client, handle, self.queue, seen, self.keeper)
        return Chat(ChatParts(self.here.client, handle, watch, source, shown, how), carry_out)

    def _show_past(self, chat: Chat) -> None:
        if not chat.turns.told:
            write_note("/help shows what else can be done here")
        elif self.wish.history:
            write_note(*history_lines(chat.turns.told[-self.wish.history :], datetime.now(UTC)), "")

    def _show_way_back(self, chat: Chat) -> None:
        if self.keeper is not None:
            self.keeper.report = write_note
        if chat.has_ended:
            write_note("the session has ended; a new one begins with: orga chat")
            return
        waits = ""
        if chat.is_busy:
            is_ours = self.keeper is not None and self.keeper.own is not None
            waits = "; the turn under way waits for another worker" if is_ours else "; so does the turn under way"
        write_note(f"the session goes on{waits}. To come back: orga chat {quote(self.session_id)}")


def chat(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="A session to go on with, or the beginning of its id; a new one without.",
            show_default=False,
        ),
    ] = None,
    *,
    say: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Say this, show the answer, and leave; - reads it from standard input."),
    ] = None,
    agent: AgentName = None,
    model: Model = None,
    instructions: Instructions = None,
    tools: Tools = None,
    set_: Settings = None,
    id_: Annotated[str | None, typer.Option("--id", help="The new session's id; session-<uuid7> without.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whom the new session is for.")] = None,
    trusted: TrustedFacts = None,
    idle: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End the session when nothing was said for so long.")
    ] = None,
    history: Annotated[int, typer.Option(min=0, help="Turns of a session's past that are shown first.")] = 3,
    no_worker: NoWorker = False,
    quiet: Quiet = False,
    json: Annotated[
        bool, typer.Option("--json", "-j", help="Each turn as one line of JSON on stdout; all else on stderr.")
    ] = False,
    config: ConfigFile = None,
) -> int:
    """Talk with an agent: each message is a turn with limits of its own, and it remembers the turns before.

    Leave when you like: the session waits for you, for months if need be; orga chat ID goes on with it.

    At a terminal, /help shows what else can be done. Ctrl-C ends the turn under way, Ctrl-D leaves.

    From a pipe each line is a message; the next one is said when it is answered.

    Agent, model, tools and settings are settled when a session begins.

    Exit codes: 0 left or all answered, 2 bad input, 3 to 6 as of `orga run`, 7 no server, 130 left amid a turn.

    Example: orga chat --agent reviewer

    Example: orga chat --last --say "And what did we decide about the dates?"

    Example: git diff | orga chat ID --say - --json
    """
    given = RunOptions("", agent, model, instructions, tools or (), set_ or (), None, None, tenant, trusted or ())
    output.set_quiet(quiet=quiet)
    text = None if say is None else clean_text(task_text(say))
    if text is not None and not text.strip():
        raise UsageError("--say: there is nothing to say")
    wish = ChatOptions(text, config, history, no_worker, json)
    if run is None:
        return run_interruptible(begin_chat(session_input(given, idle), session_id_of(id_), wish))
    if given != RunOptions("") or id_ is not None or idle is not None:
        raise UsageError(
            "agent, model, tools and settings are settled when a session begins: leave these options out, or leave "
            "the ID out to begin a new session"
        )
    return run_interruptible(continue_chat(run, wish))
