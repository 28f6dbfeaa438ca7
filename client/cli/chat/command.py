"""`orga chat`: start a session or continue one."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from orga.activities.media import Media
from orga.client.cli.chat.screen import ChatScreen, OneMessage, PipedLines, PlainChat, TurnPrinter
from orga.client.cli.chat.talk import CLOSING_S, Chat, attached_lines, history_lines
from orga.client.cli.connection import CliContext, run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import Command
from orga.client.cli.live.screens import PlainScreen, QuietScreen, is_terminal
from orga.client.cli.live.watch import Watch
from orga.client.cli.options import (
    AgentName,
    Attach,
    ConfigFile,
    Instructions,
    Model,
    NoWorker,
    Quiet,
    Settings,
    Tools,
    TrustedFacts,
    text_or_stdin,
)
from orga.client.cli.shown.text import age, is_quiet, set_quiet, write_note
from orga.client.cli.start.run import started_run, worker_for_live_run
from orga.client.cli.start.task_input import RunOptions, attached_media, session_input
from orga.client.config.known_input import requested_names
from orga.client.errors import NotAnAgent, OrgaError, RunNotFound
from orga.client.runs.agents import new_run_id
from orga.client.runs.ids import newest_session
from orga.client.runs.sessions import SessionHandle, start_session
from orga.client.workers.process import WorkerKeeper
from orga.workflows.types.names import RUN_WORKFLOWS, SESSION_WORKFLOW
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.sessions.session_input import MAX_MESSAGE_ATTACHMENTS, SessionInput
from orga.workflows.types.text import clean_text, full_field_text


@dataclass(frozen=True)
class ChatOptions:
    text: str | None
    """The only message to send, or None to read messages from the keyboard or a pipe."""
    config: Path | None
    history: int
    no_worker: bool
    as_json: bool
    attached: Sequence[Media] = ()
    """Pictures and documents for the first message."""


async def begin_chat(session: SessionInput, session_id: str, options: ChatOptions) -> int:
    async def start(context: CliContext) -> SessionHandle:
        return await start_session(context.client, session, session_id=session_id)

    names = requested_names(session)
    started = started_run(start, names, options.config, no_worker=options.no_worker, what="session")
    async with started as (context, _, keeper):
        chat = _TerminalChat(context, session_id, context.task_queue, keeper, options, is_new=True)
        return await chat.run_to_end()


async def _continue_chat(name: str, options: ChatOptions) -> int:
    """Chat in an existing session, and return the exit code. Raise UsageError if it has ended, or is no session."""
    try:
        async with run_context(name, options.config, newest_session) as (context, session_id):
            described = await context.run(session_id).describe()
            _require_open_session(described)
            async with worker_for_live_run(context, described, "orga chat", no_worker=options.no_worker) as keeper:
                if link := context.connection.link(session_id):
                    write_note(link)
                return await _TerminalChat(context, session_id, described.task_queue, keeper, options).run_to_end()
    except RunNotFound as error:
        if " " in name:
            send = f"orga chat --say {quote(name)}"
            raise UsageError(f"there is no session {name!r}. To send this as a message: {send}") from error
        raise


def _require_open_session(run: WorkflowExecutionDescription) -> None:
    if run.workflow_type not in RUN_WORKFLOWS:
        raise NotAnAgent(run.id, run.workflow_type)
    if run.workflow_type != SESSION_WORKFLOW:
        raise UsageError(
            f"{full_field_text(run.id)} is the run of one task, not a session. `orga attach {quote(run.id)}` follows "
            f"it, `orga fork {quote(run.id)} --to-iteration N --task TEXT` continues it. Start a session with: "
            "orga chat"
        )
    if run.status != WorkflowExecutionStatus.RUNNING:
        when = f" {age(run.close_time, datetime.now(UTC))} ago" if run.close_time else ""
        raise UsageError(
            f"session {full_field_text(run.id)} has ended{when}. `orga journal {quote(run.id)}` shows its journal. "
            "Start a new session with: orga chat"
        )


@dataclass(frozen=True)
class _TerminalChat:
    context: CliContext
    session_id: str
    queue: str
    keeper: WorkerKeeper | None
    options: ChatOptions
    is_new: bool = False

    async def run_to_end(self) -> int:
        """Chat, then show how to return to the session. Close a new session if no message was sent to it."""
        chat = self._build_chat()
        try:
            await chat.catch_up()
            self._show_past(chat)
            code = await chat.talk()
        except asyncio.CancelledError:
            self._show_way_back(chat)
            raise
        except (OrgaError, RPCError, UsageError, InvalidInput):
            if self._is_without_message(chat):
                with suppress(OrgaError, RPCError):  # the first error is the one to report
                    await self._close(chat)
            raise
        if self._is_without_message(chat) and not chat.has_ended:
            await self._close(chat)
        else:
            self._show_way_back(chat)
        return code

    def _is_without_message(self, chat: Chat) -> bool:
        return self.is_new and not chat.has_sent and not chat.turns.recorded

    async def _close(self, chat: Chat) -> None:
        await chat.session.close()
        if self.keeper is not None:  # our worker stops with this command, so wait until it has ended the session
            with suppress(TimeoutError, OrgaError, RPCError):
                await asyncio.wait_for(chat.session.result(), CLOSING_S)
        write_note("nothing was sent, so the session is closed")

    def _build_chat(self) -> Chat:
        client, options = self.context.client, self.options
        handle, printer = SessionHandle(client, self.session_id), TurnPrinter(self.session_id, options.as_json)
        if options.text is None and sys.stdin.isatty() and is_terminal():
            screen = view = ChatScreen(printer)
            source, mode = screen.keyboard, "typed"
        else:
            screen = QuietScreen() if is_quiet() else PlainScreen()
            view = PlainChat(screen, printer)
            source, mode = (PipedLines(), "piped") if options.text is None else (OneMessage(options.text), "one")
        if self.keeper is not None:
            self.keeper.report = screen.note
        watch = Watch(client, handle, self.queue, screen, self.keeper)
        return Chat(client, handle, watch, source, view, mode=mode, attached=options.attached)

    def _show_past(self, chat: Chat) -> None:
        if chat.is_typed and not chat.turns.recorded:
            write_note("/help shows the commands")
        elif chat.turns.recorded and self.options.history:
            write_note(*history_lines(chat.turns.recorded[-self.options.history :], datetime.now(UTC)), "")
        if chat.attached and chat.is_typed:
            write_note(*attached_lines(chat.attached))

    def _show_way_back(self, chat: Chat) -> None:
        if self.keeper is not None:
            self.keeper.report = write_note
        if chat.has_ended:
            write_note("the session has ended; start a new one with: orga chat")
            return
        waits = ""
        if chat.is_busy:
            is_ours = self.keeper is not None and self.keeper.own is not None
            waits = "; the current turn waits for another worker" if is_ours else "; so does the current turn"
        write_note(f"the session goes on{waits}. To return: orga chat {quote(self.session_id)}")


def chat(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="The id of a session to continue, or its first characters. Default: a new session.",
            show_default=False,
        ),
    ] = None,
    *,
    say: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Send this message, show the answer, and exit; - reads standard input."),
    ] = None,
    agent: AgentName = None,
    model: Model = None,
    instructions: Instructions = None,
    tools: Tools = None,
    set_: Settings = None,
    id_: Annotated[str | None, typer.Option("--id", help="The new session's id. Default: session-<uuid7>.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant that the new session is for.")] = None,
    trusted: TrustedFacts = None,
    idle: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End the session after so long without a message.")
    ] = None,
    attach: Attach = None,
    history: Annotated[int, typer.Option(min=0, help="The number of past turns to show first.")] = 3,
    no_worker: NoWorker = False,
    quiet: Quiet = False,
    json: Annotated[
        bool,
        typer.Option("--json", "-j", help="Write each turn to stdout as one line of JSON. All else goes to stderr."),
    ] = False,
    config: ConfigFile = None,
) -> Command:
    """You can leave at any time. The session waits for you, even for months; orga chat ID continues it.

    At a terminal, /help shows the commands. Ctrl-C ends the current turn, Ctrl-D leaves.

    From a pipe, each line is a message. The next line is sent after the answer.

    Agent, model, tools and settings are fixed when a session starts.

    Exit codes: 0 left or all answered, 2 bad input, 3 to 6 as in `orga run`, 7 no server, 130 left during a turn.

    Example: orga chat --agent reviewer

    Example: orga chat --last --say "And what did we decide about the dates?"

    Example: orga chat --last --say "Is it better now?" --attach screenshot.png

    Example: git diff | orga chat ID --say - --json
    """
    fixed = RunOptions("", agent, model, instructions, tools or (), set_ or (), tenant=tenant, trusted=trusted or ())
    set_quiet(quiet=quiet)
    text = None if say is None else clean_text(text_or_stdin(say))
    if text is not None and not text.strip():
        raise UsageError("--say: the message is empty")
    attached = attached_media(attach or (), limit=MAX_MESSAGE_ATTACHMENTS)
    options = ChatOptions(text, config, history, no_worker, json, attached)
    if run is None:
        return begin_chat(session_input(fixed, idle), new_run_id(id_, "session"), options)
    if fixed != RunOptions("") or id_ is not None or idle is not None:
        raise UsageError(
            "agent, model, tools and settings are fixed when a session starts. Remove these options, or remove the ID "
            "to start a new session"
        )
    return _continue_chat(run, options)
