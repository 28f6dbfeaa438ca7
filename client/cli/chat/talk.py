"""The loop of a chat: it sends messages to the session and shows the answers until the person leaves."""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import NamedTuple, cast

import uuid_utils
from temporalio.client import Client
from temporalio.service import RPCError

from orga.activities.media import Media, loaded_media
from orga.client.cli.chat.screen import ChatExit, ChatView, CtrlCEffect, InputMode, MessageSource
from orga.client.cli.exit_codes import ExitCode, UsageError, ending_exit_code
from orga.client.cli.inspect.status import message_lines
from orga.client.cli.interrupts import CTRL_C_EXIT_CODE, ctrl_c_handler
from orga.client.cli.live.watch import Watch
from orga.client.cli.options import login_name
from orga.client.cli.shown.decisions import HeldCall, has_unshown_arguments, held_call_table, held_calls
from orga.client.cli.shown.narration import INDENT, entry_lines
from orga.client.cli.shown.status_text import call_budgets, status_lines
from orga.client.cli.shown.text import (
    StyledLine,
    age,
    count_text,
    hanging_lines,
    separated_blocks,
    terminal_line,
)
from orga.client.cli.start.task_input import attached_media
from orga.client.errors import NotTakenYet, OrgaError, Refused, RunEnded, ServerLost, SessionClosed, TurnUnknown
from orga.client.journal import event_types as on
from orga.client.journal.reading import read_journal
from orga.client.journal.run_view import RunView, Turn, ViewedEntry
from orga.client.runs.agents import AgentHandle
from orga.client.runs.sessions import SendOptions, SessionHandle
from orga.client.server.home import user_path
from orga.workflows.decisions.result import call_counts_text, usage_text
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.sessions.session_input import MAX_MESSAGE_ATTACHMENTS, WhenBusy
from orga.workflows.types.sessions.session_result import TURN_ENDED, TURN_STARTED, SessionStatus, TurnReason, TurnResult
from orga.workflows.types.status import JournalEntry, ShownMessage
from orga.workflows.types.text import similar_name_hint

SHOWN_CHARS = 600
"""Characters of a message or an answer in the history. The rest is cut."""

_HIDDEN_EVENTS = (on.Started, on.TurnStarted, on.TurnEnded, on.Terminated)


class ShownTurn(NamedTuple):
    turn: Turn
    lines: list[StyledLine]
    """A line for each call and each other event of the turn."""


@dataclass
class SessionTurns:
    """All turns of a session. `take` adds the journal's entries in order."""

    recorded: list[ShownTurn] = field(default_factory=list[ShownTurn])

    @property
    def current(self) -> Turn | None:
        """None between turns."""
        return self.recorded[-1].turn if self.recorded and not self.recorded[-1].turn.reason else None

    def ended_turn(self, number: int) -> ShownTurn:
        """Return a turn that has ended. Raise TurnUnknown if the journal has none with this number."""
        for shown in reversed(self.recorded):
            if shown.turn.number == number and shown.turn.reason:
                return shown
        raise TurnUnknown(f"turn {number} is not in the journal")

    def take(self, viewed: ViewedEntry) -> list[StyledLine]:
        """Add the next entry, and return the lines to show for it."""
        run, indent = viewed.run, INDENT * viewed.run.depth
        if isinstance(viewed.event, on.TurnStarted) and not viewed.entry.run and run.turn:
            self.recorded.append(ShownTurn(run.turn, []))
        shown = (line for line in entry_lines(viewed) if _is_shown(viewed, line))
        lines = [replace(line, text=indent + line.text) for line in shown]
        if self.recorded:
            self.recorded[-1].lines.extend(lines)
        return lines


def _is_shown(viewed: ViewedEntry, line: StyledLine) -> bool:
    """Return whether a line is shown. A reply only shows errors: calls appear with results, and the answer in full."""
    if isinstance(viewed.event, _HIDDEN_EVENTS) or line.tone == "quiet":
        return False
    return not isinstance(viewed.event, on.ReasoningComplete) or line.tone == "bad"


def history_lines(shown: list[ShownTurn], now: datetime) -> list[str]:
    lines = list[str]()
    for turn, event_lines in shown:
        lines += ["", f"── turn {turn.number}, {age(turn.begun_at, now)} ago"]
        lines += hanging_lines("› ", _bounded_text(turn.message))
        lines += [f"  {line.text}" for line in event_lines]
        if turn.answer:
            lines += hanging_lines("", _bounded_text(turn.answer))
        if turn.reason != "completed":
            lines.append(f"  ({turn.reason or 'in progress'})")
    return lines[1:]


def _bounded_text(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


_COMMAND_LINE = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


class ChatMessage(NamedTuple):
    text: str


class CommandCall(NamedTuple):
    name: str
    argument: str = ""


def parse_line(line: str) -> ChatMessage | CommandCall:
    """Parse a line as a message or a command.

    A message may begin with `//`, which means `/`. A path such as `/etc/hosts` is a message.

    Raises:
        UsageError: There is no such command, or its argument is missing or not allowed.
    """
    text = line.strip()
    if text.startswith("//"):
        return ChatMessage(text[1:])
    match = _COMMAND_LINE.fullmatch(text)
    if match is None:
        return ChatMessage(text)
    name, argument = match[1], (match[2] or "").strip()
    if name not in COMMANDS:
        raise UsageError(
            f"/{name}: no such command; {similar_name_hint(name, list(COMMANDS))}/help lists them, "
            f"//{name} sends it as a message"
        )
    takes = COMMANDS[name].takes
    if argument and not takes:
        raise UsageError(f"/{name}: takes no argument. //{name} sends the line as a message")
    if takes == "TEXT" and not argument:
        raise UsageError(f"/{name}: the text is missing. Write /{name} TEXT")
    return CommandCall(name, argument)


def help_lines() -> list[str]:
    heads = {name: f"/{name} {command.takes}".rstrip() for name, command in COMMANDS.items()}
    width = max(map(len, heads.values()))
    return [
        *(f"{heads[name]:{width}}  {command.does}" for name, command in COMMANDS.items()),
        "",
        r"Enter sends; Alt-Enter, or \ at the end of a line, starts another line. ↑ recalls earlier messages.",
        "Messages that you send during a turn wait until it has ended.",
        "Ctrl-C ends the current turn; at an empty prompt it leaves, as Ctrl-D does.",
    ]


CLOSING_S = 15.0
"""Seconds to wait for a closed session to end."""

MAX_RESENDS = 5
"""How often a message is sent again if no worker took it. Each attempt waits 5 to 15 seconds for a worker."""


class Chat:
    """A conversation in one session: it sends messages and follows the session's journal."""

    def __init__(
        self,
        client: Client,
        session: SessionHandle,
        watch: Watch,
        source: MessageSource,
        shown: ChatView,
        *,
        mode: InputMode,
        attached: Iterable[Media] = (),
    ) -> None:
        self.session = session
        self.shown = shown
        self.run = RunView()
        self.turns = SessionTurns()
        self.attached = [*attached]
        """Pictures and documents for the next message."""
        self.code = int(ExitCode.COMPLETED)
        """The exit code of a script's last turn that was not completed."""
        self.has_sent = False
        """True once a message was sent and not refused."""
        self.is_typed = mode == "typed"
        """True if a person types the messages."""
        self._ended_event = asyncio.Event()
        self._client = client
        self._watch = watch
        self._source = source
        self._takes_commands = mode != "one"
        self._next_sequence = 0
        self._turn_endings: dict[int, asyncio.Future[TurnReason]] = {}
        """The end reason of each turn, by its number. A turn may end before `_post` returns its number."""
        self._is_posting = False
        self._is_script_waiting = False
        """True while a script waits for the result of a line."""
        self._queued_turns = set[int]()
        self._has_interrupted = False
        """True if the current turn was interrupted with Ctrl-C."""
        self._interrupt_tasks = set[asyncio.Task[None]]()

    async def catch_up(self) -> None:
        """Read the journal so far without showing it."""
        async for entry in read_journal(self._client, self.session.id):
            viewed = self.run.take(entry)
            self.turns.take(viewed)
            self._watch.show_event(viewed)
            self._next_sequence = entry.sequence + 1

    async def talk(self) -> int:
        """Chat until the person leaves or the session ends, and return the exit code."""
        following, sending = asyncio.create_task(self._follow()), asyncio.create_task(self._read_and_send())
        leaving = asyncio.get_running_loop().create_future()

        def at_signal() -> None:
            if self.handle_ctrl_c() != "interrupts" and not leaving.done():
                leaving.set_result(CTRL_C_EXIT_CODE)

        try:
            async with self._watch.refreshing():
                with ctrl_c_handler(at_signal):
                    await asyncio.wait({following, sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    return leaving.result()
                if sending.done():
                    return sending.result()
                following.result()
                self._ended_event.set()
                return await sending if self._is_script_waiting else self.code
        finally:
            tasks = (following, sending, *self._interrupt_tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send_message(self, text: str, when_busy: WhenBusy = "enqueue") -> None:
        """Send a message. If it comes from a script, wait until its turn has ended."""
        waits = self.is_busy and when_busy == "enqueue"
        turn = await self._post(text, when_busy)
        end = self._turn_ending(turn)
        self.shown.is_busy = self.is_busy
        if not self.is_typed:
            self.code = ending_exit_code(await self._wait_for_turn(turn)) or self.code
        elif waits and not end.done():
            self._queued_turns.add(turn)
            self.shown.note(f"turn {turn} waits: it begins after the turns before it")

    @property
    def has_ended(self) -> bool:
        """True once the session has ended and its whole journal was read."""
        return self._ended_event.is_set()

    async def wait_until_ended(self) -> None:
        """Wait until a closed session has ended, at most `CLOSING_S`.

        The session may need this command's own worker, which stops with the command.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended_event.wait(), CLOSING_S)

    @property
    def is_busy(self) -> bool:
        """True while a turn is carried out or waits, or a message is being sent."""
        return (
            self._is_posting
            or self.turns.current is not None
            or any(not end.done() for end in self._turn_endings.values())
        )

    def handle_ctrl_c(self) -> CtrlCEffect:
        """Interrupt the current turn and return the effect. A second Ctrl-C in the same turn leaves."""
        if not self.is_busy:
            return "clears"
        if self._has_interrupted:
            return "leaves"
        self._has_interrupted = True
        task = asyncio.create_task(self._interrupt())
        self._interrupt_tasks.add(task)
        task.add_done_callback(self._interrupt_tasks.discard)
        return "interrupts"

    async def _post(self, text: str, when_busy: WhenBusy) -> int:
        had_sent, self.has_sent, self._is_posting = self.has_sent, True, True
        try:
            turn = await self._send_until_taken(text, when_busy)
        except (OrgaError, InvalidInput):
            self.has_sent = had_sent
            raise
        else:
            if when_busy != "steer":
                self.attached.clear()
            return turn
        finally:
            self._is_posting = False

    async def _send_until_taken(self, text: str, when_busy: WhenBusy) -> int:
        """Send a message and return its turn. If no worker takes it, send it again. Its id makes it count once."""
        options: SendOptions = {"when_busy": when_busy, "message_id": str(uuid_utils.uuid7())}
        if when_busy != "steer":
            options["attachments"] = self.attached
        for _ in range(MAX_RESENDS):
            try:
                return await self.session.post(text, **options)
            except (NotTakenYet, ServerLost):
                self.shown.note("no worker has confirmed the message yet; sending it again")
        return await self.session.post(text, **options)

    async def _interrupt(self) -> None:
        self.shown.note("interrupting the turn… (Ctrl-C again leaves, and the session goes on)")
        try:
            await self.interrupt("Ctrl-C in the chat")
        except (OrgaError, RPCError) as error:
            self.shown.note(f"not interrupted: {error}")

    async def interrupt(self, why: str) -> None:
        """Interrupt the turn that is shown as the current one. Raise Refused if it has ended, or if there is none."""
        current = self.turns.current
        await self.session.interrupt(why, turn=current.number if current else None, by=login_name())

    async def _read_and_send(self) -> int:
        while not self.has_ended:
            try:
                line = await self._source.read(self.handle_ctrl_c)
                self._is_script_waiting = not self.is_typed
                await self._handle_line(line)
                self._is_script_waiting = False
            except ChatExit as chat_exit:
                return chat_exit.code or self.code
            except (OrgaError, InvalidInput, UsageError, RPCError) as error:
                if not self.is_typed:
                    return self._script_exit_code(error)
                self.shown.lines(*hanging_lines("orga: ", str(error)))
        if self._source.has_more():
            return self._script_exit_code(RunEnded(self.session.id))
        return self.code

    def _script_exit_code(self, error: Exception) -> int:
        """Return the exit code of a script whose session ended before all its messages were sent.

        Raises:
            RunEnded: All turns so far were completed.
            Exception: `error` itself, if its cause is not the session's end.
        """
        if not isinstance(error, RunEnded | SessionClosed):
            raise error
        if self.code:
            return self.code
        raise RunEnded(self.session.id)

    async def _handle_line(self, line: str) -> None:
        parsed = parse_line(line) if self._takes_commands else ChatMessage(line)
        if isinstance(parsed, CommandCall):
            await carry_out(self, parsed)
        elif not self.shown.take_answer(parsed.text) and parsed.text:
            await self.send_message(parsed.text)

    async def _follow(self) -> None:
        async for event in self.session.events(after=self._next_sequence - 1):
            if isinstance(event, JournalEntry):
                await self._show_entry(event)
            else:
                self._watch.show_event(event)

    async def _show_entry(self, entry: JournalEntry) -> None:
        viewed = self.run.take(entry)
        self._watch.show_event(viewed)
        for line in self.turns.take(viewed):
            self.shown.show_line(line, entry.timestamp)
        if (turn := self.run.turn) is None:
            return
        if entry.event == TURN_STARTED:
            self._has_interrupted = False
            if turn.number not in self._turn_endings or turn.number in self._queued_turns:
                self.shown.note(f"turn {turn.number}: {terminal_line(turn.message)}")
        if entry.event == TURN_ENDED:
            self._has_interrupted = False
            await self._show_turn_end(turn.number)
        self.shown.is_busy = self.is_busy

    async def _show_turn_end(self, turn: int) -> None:
        try:
            result = await self.session.result_of(turn)
            self.shown.show_turn(result)
            reason = result.termination.reason
        except TurnUnknown as error:  # a session keeps only its last turns, and this one is older by now
            past = self.turns.ended_turn(turn)
            self.shown.lines(*history_lines([past], datetime.now(UTC)), f"orga: {error}")
            reason = cast("TurnReason", past.turn.reason)
        if not (end := self._turn_ending(turn)).done():
            end.set_result(reason)

    async def _wait_for_turn(self, turn: int) -> TurnReason:
        """Wait until a turn has ended, and return the reason. The session's end also ends turns that never began."""
        end, session_end = self._turn_ending(turn), asyncio.create_task(self._ended_event.wait())
        await asyncio.wait({end, session_end}, return_when=asyncio.FIRST_COMPLETED)
        session_end.cancel()
        if not end.done():
            await self._show_turn_end(turn)
        return end.result()

    def _turn_ending(self, turn: int) -> asyncio.Future[TurnReason]:
        return self._turn_endings.setdefault(turn, asyncio.get_running_loop().create_future())


HISTORY_TURNS = 5
"""Turns that `/history` shows without a number."""

_MAX_TOOL_MESSAGE_CHARS = 4_000
"""Characters of a message that `/tools` shows. The rest is cut."""


async def carry_out(chat: Chat, call: CommandCall) -> None:
    """Carry out a command. Raise ChatExit if it leaves the chat, or UsageError if it is not possible now."""
    await COMMANDS[call.name].handle(chat, call.argument)


async def _help(chat: Chat, _: str) -> None:
    chat.shown.lines(*help_lines())


async def _steer(chat: Chat, text: str) -> None:
    if not chat.is_busy:
        raise UsageError("/steer: there is no current turn. Send the text as a message instead")
    await chat.send_message(text, "steer")
    chat.shown.note("the current turn reads it at its next step")


async def _interrupt(chat: Chat, text: str) -> None:
    if text:
        await chat.send_message(text, "interrupt")
    else:
        await chat.interrupt("/interrupt in the chat")


async def _attach(chat: Chat, file: str) -> None:
    if file and not chat.is_typed:  # piped lines may come from anybody
        raise UsageError("/attach: only a person at a terminal can attach a file. From a script use: --attach FILE")
    if file:
        chat.attached = attached_media(
            [_typed_path(file)], "/attach", limit=MAX_MESSAGE_ATTACHMENTS, earlier=chat.attached
        )
    chat.shown.lines(*attached_lines(chat.attached))


def _typed_path(text: str) -> str:
    """Return the path in a typed line. If a file is dropped on a terminal, the line has its path quoted for a shell."""
    with suppress(ValueError, OSError):  # ValueError: NUL, or an open quotation mark
        words = shlex.split(text)
        if len(words) == 1 and not user_path(text).exists():
            return words[0]
    return text


def attached_lines(attached: Sequence[Media]) -> list[str]:
    return [f"{loaded_media(media).line()} goes with the next message" for media in attached] or ["nothing is attached"]


async def _detach(chat: Chat, _: str) -> None:
    chat.attached.clear()
    chat.shown.lines(*attached_lines(chat.attached))


async def _tools(chat: Chat, _: str) -> None:
    messages = last_turn_messages(await chat.session.conversation())
    if not any(message.calls or message.tool for message in messages):
        raise UsageError("/tools: the last turn called no tool")
    chat.shown.lines(*separated_blocks(message_lines(_cut_message(message)) for message in messages))


def _cut_message(message: ShownMessage) -> ShownMessage:
    if len(message.text) <= _MAX_TOOL_MESSAGE_CHARS:
        return message
    return message.with_text(f"{message.text[:_MAX_TOOL_MESSAGE_CHARS]}… (orga conversation shows it in full)")


def last_turn_messages(messages: list[ShownMessage]) -> list[ShownMessage]:
    """Return the messages after the last one of the user."""
    user_indexes = [index for index, message in enumerate(messages) if message.role == "user"]
    return messages[user_indexes[-1] + 1 :] if user_indexes else []


async def _status(chat: Chat, _: str) -> None:
    chat.shown.lines(*status_lines(chat.session.id, await chat.session.status()))


async def _budget(chat: Chat, _: str) -> None:
    status = await chat.session.status()
    ended_turns = () if status.turn else await chat.session.turns()
    chat.shown.lines(*budget_lines(status, ended_turns[-1] if ended_turns else None))


def budget_lines(status: SessionStatus, last: TurnResult | None) -> list[str]:
    """Return how much of each limit the current turn has used. Between turns, `last` is the turn that is shown."""
    budgets = status.budgets
    if last:
        iterations, tokens, seconds = last.iterations, last.usage.total_tokens, last.duration_s
    else:
        iterations = budgets.max_iterations - budgets.iterations
        tokens = budgets.max_total_tokens - budgets.tokens
        seconds = budgets.timeout_s - budgets.time_s
    number = status.turn or (last.turn if last else 0)
    return [
        f"turn {number}: {iterations} of {budgets.max_iterations} iterations, "
        f"{tokens} of {budgets.max_total_tokens} tokens, {seconds:.0f} of {budgets.timeout_s:.0f} s",
        *([f"calls: {calls}"] if (calls := call_budgets(budgets)) else []),
        f"in all {count_text(status.turns, 'turn')}: {usage_text(status.usage)}, {call_counts_text(status.tool_calls)}",
    ]


async def _history(chat: Chat, number: str) -> None:
    if number and not (number.isdecimal() and int(number)):
        raise UsageError(f"/history {number}: not a number of turns. Write for example /history {HISTORY_TURNS}")
    turns = chat.turns.recorded[-int(number or HISTORY_TURNS) :]
    chat.shown.lines(*(history_lines(turns, datetime.now(UTC)) or ["nothing was sent yet"]))


async def _decide(chat: Chat, argument: str, *, approves: bool) -> None:
    if not chat.is_typed:  # piped lines may come from anybody
        raise UsageError("only a person at a terminal can decide that. From a script use: orga approve, orga deny")
    shown = chat.shown.shown_call_ids()  # the person had seen only these when typing the command
    calls = [call for wait in (await chat.session.live_status()).waiting for call in held_calls(wait)]
    chat.shown.show_calls(calls)
    chat.shown.lines(*await _decide_calls(chat.session, calls, argument, shown=shown, approves=approves))


async def _decide_calls(
    run: AgentHandle, calls: list[HeldCall], argument: str, *, shown: Set[str], approves: bool
) -> list[str]:
    """Approve or deny held calls, and return a line for each, even if this person may not decide it.

    Args:
        argument: An approval's id or `all`, and a reason. Both are optional, but several calls need the id or `all`.
        shown: The ids of the calls that the person had seen before the command. Without an id, only these are decided.

    Raises:
        UsageError: There is no call to decide, or it is not clear which one, or nobody has seen its arguments.
    """
    if not calls:
        raise UsageError("nothing waits for your approval")
    held = {str(call["id"]): call for call in calls}
    command = "approve" if approves else "deny"
    named, _, rest = argument.partition(" ")
    if named in shown and named not in held:
        raise UsageError(f"{named} does not wait any more, but another call does. /{command} decides that one")
    chosen = [named] if named in held else [approval_id for approval_id in held if approval_id in shown]
    if not chosen:
        raise UsageError(f"nothing was decided: you had not seen the waiting call yet. /{command} decides it now")
    is_named = named == "all" or named in held
    if len(chosen) > 1 and not is_named:
        table = "\n".join(held_call_table([held[approval_id] for approval_id in chosen], datetime.now(UTC)))
        raise UsageError(f"several calls wait. Use /{command} ID, or /{command} all\n{table}")
    if approves and (unseen := [approval_id for approval_id in chosen if has_unshown_arguments(held[approval_id])]):
        show = f"orga approve {quote(run.id)} {' '.join(map(quote, unseen))} --show"
        raise UsageError(f"the arguments are too long to approve in a chat. See them with: {show}")
    decide = run.approve if approves else run.deny
    reason = rest.strip() if is_named else argument
    lines = list[str]()
    for approval_id in chosen:
        what = f"{held[approval_id].get('tool')} {approval_id}"
        try:
            await decide(approval_id, login_name(), reason)
            lines.append(f"{'approved' if approves else 'denied'}: {what}")
        except Refused as error:
            lines.append(f"not decided: {what}: {error}")
    return lines


async def _close(chat: Chat, _: str) -> None:
    await chat.session.close(by=login_name())
    if chat.is_busy:
        chat.shown.note("the session ends after the current turn")
    if not (chat.is_typed and chat.is_busy):
        await chat.wait_until_ended()


async def _quit(chat: Chat, _: str) -> None:
    raise ChatExit


class ChatCommand(NamedTuple):
    """A command as `/help` shows it."""

    takes: str
    """The argument; "" if the command takes none."""
    does: str
    handle: Callable[[Chat, str], Awaitable[None]]


COMMANDS: dict[str, ChatCommand] = {
    "help": ChatCommand("", "show these commands", _help),
    "steer": ChatCommand("TEXT", "guide the current turn at its next step", _steer),
    "interrupt": ChatCommand("[TEXT]", "end the current turn, and send TEXT instead", _interrupt),
    "attach": ChatCommand(
        "[FILE]", "attach a picture or a PDF to the next message; without FILE, show what is attached", _attach
    ),
    "detach": ChatCommand("", "attach nothing to the next message", _detach),
    "tools": ChatCommand("", "show the tool calls of the last turn with arguments and results", _tools),
    "status": ChatCommand("", "show the state of the session", _status),
    "budget": ChatCommand("", "show how much of its limits the turn has used", _budget),
    "history": ChatCommand("[N]", "show the last N turns", _history),
    "approve": ChatCommand("[ID|all] [REASON]", "approve the calls that wait for you", partial(_decide, approves=True)),
    "deny": ChatCommand(
        "[ID|all] [REASON]",
        "deny the calls that wait for you; the model reads the reason",
        partial(_decide, approves=False),
    ),
    "close": ChatCommand("", "end the session for good", _close),
    "quit": ChatCommand("", "leave; the session goes on", _quit),
}
