"""The loop of a chat: sends what is typed to the session and shows the result until the person leaves."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from datetime import UTC, datetime
from shlex import quote
from typing import NamedTuple, cast

import uuid_utils
from temporalio.service import RPCError

from orga.client.cli.chat.source import ChatExit, ChatParts, CtrlCEffect
from orga.client.cli.chat.turns import SessionTurns, history_lines, turn_summary
from orga.client.cli.exit_codes import ExitCode, UsageError, ending_exit_code
from orga.client.cli.inspect.conversation import message_lines
from orga.client.cli.interrupts import CTRL_C_EXIT_CODE, ctrl_c_handler
from orga.client.cli.options import login_name
from orga.client.cli.shown.decisions import HeldCall, has_unshown_arguments, held_call_table, held_calls
from orga.client.cli.shown.status_text import call_budgets, status_lines
from orga.client.cli.shown.text import count_text, hanging_lines, separated_blocks
from orga.client.errors import NotTakenYet, OrgaError, Refused, RunEnded, ServerLost, SessionClosed, TurnUnknown
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.workflows.decisions.result import call_counts_text, usage_text
from orga.workflows.types.sessions.input import WhenBusy
from orga.workflows.types.sessions.result import TURN_ENDED, TURN_STARTED, SessionStatus, TurnReason, TurnResult
from orga.workflows.types.status import JournalEntry, ShownMessage
from orga.workflows.types.text import similar_name_hint

ALL = "all"


async def current_held_calls(run: AgentHandle) -> list[HeldCall]:
    """Return the calls that the run or its delegates hold now."""
    return [call for wait in (await run.live_status()).waiting for call in held_calls(wait)]


async def decide_calls(
    run: AgentHandle, calls: list[HeldCall], argument: str, *, told: Set[str], approves: bool
) -> list[str]:
    """Approve or deny calls that are held, and return a line for each, also where this person may not.

    Args:
        run: The session.
        calls: What it holds.
        argument: A reason; where several calls are held, first which: the approval's id, or `all`.
        told: The ids of the calls that the person had been shown on saying so; unnamed, no other is meant.
        approves: Whether the answer is yes.

    Raises:
        UsageError: None is held, none that was shown, not the one that is named, or several and none is named; a yes
            is to arguments that were not shown.
    """
    if not calls:
        raise UsageError("nothing waits for your yes")
    held = {str(call["id"]): call for call in calls}
    word = "approve" if approves else "deny"
    named, _, rest = argument.partition(" ")
    if named in told and named not in held:
        raise UsageError(f"{named} does not wait any more; another call does: /{word} decides that")
    meant = [each for each in held if each == named or (named not in held and each in told)]
    if not meant:
        raise UsageError(f"nothing is decided: what waits was not shown yet when you said so; /{word} decides it now")
    is_named = named == ALL or named in held
    if len(meant) > 1 and not is_named:
        shown = "\n".join(held_call_table([held[each] for each in meant], datetime.now(UTC)))
        raise UsageError(f"several calls wait: /{word} ID, or /{word} {ALL}\n{shown}")
    if approves and (unseen := [each for each in meant if has_unshown_arguments(held[each])]):
        command = f"orga approve {quote(run.id)} {' '.join(map(quote, unseen))} --show"
        raise UsageError(f"arguments too long to stand here are approved by no chat; see them with: {command}")
    tell, who, lines = (run.approve if approves else run.deny), login_name(), list[str]()
    for approval_id in meant:
        what = f"{held[approval_id].get('tool')} {approval_id}"
        try:
            await tell(approval_id, who, rest.strip() if is_named else argument)
            lines.append(f"{'approved' if approves else 'denied'}: {what}")
        except Refused as error:
            lines.append(f"not decided: {what}: {error}")
    return lines


class ChatCommand(NamedTuple):
    """One command, as `/help` shows it."""

    takes: str
    """What stands behind its name; "" where nothing may."""
    does: str


COMMANDS: dict[str, ChatCommand] = {
    "help": ChatCommand("", "show these commands"),
    "steer": ChatCommand("TEXT", "guide the turn that is under way, at its next step"),
    "interrupt": ChatCommand("[TEXT]", "end the turn that is under way, and say TEXT in its place"),
    "tools": ChatCommand("", "unfold the tool calls of the last turn: arguments and what became of them"),
    "status": ChatCommand("", "where the session stands"),
    "budget": ChatCommand("", "what the turn has spent of its limits"),
    "history": ChatCommand("[N]", "show the last N turns"),
    "approve": ChatCommand("[ID|all] [REASON]", "let the calls run that wait for your yes"),
    "deny": ChatCommand("[ID|all] [REASON]", "turn the calls down that wait for your yes; the model reads the reason"),
    "close": ChatCommand("", "end the session for good"),
    "quit": ChatCommand("", "leave; the session goes on"),
}
"""By name."""

_COMMAND_LINE = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


class ChatMessage(NamedTuple):
    """A line that is no command."""

    text: str


class CommandCall(NamedTuple):
    """A command, with what stands behind its name."""

    name: str
    argument: str = ""


def parse_line(line: str) -> ChatMessage | CommandCall:
    """Return what a line is; `//` at its beginning stands for a `/` that is said, and a path is no command.

    Raises:
        UsageError: There is no such command, or it lacks its text.
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
            f"/{name} is no command: {similar_name_hint(name, list(COMMANDS))}/help shows them, //{name} says it"
        )
    takes = COMMANDS[name].takes
    if argument and not takes:
        raise UsageError(f"/{name} takes nothing behind it; //{name} says the line to the agent")
    if takes == "TEXT" and not argument:
        raise UsageError(f"/{name}: add what is to be said: /{name} TEXT")
    return CommandCall(name, argument)


def help_lines() -> list[str]:
    """Return the commands, and the keys of the line in which one types."""
    heads = {name: f"/{name} {command.takes}".rstrip() for name, command in COMMANDS.items()}
    width = max(map(len, heads.values()))
    return [
        *(f"{heads[name]:{width}}  {command.does}" for name, command in COMMANDS.items()),
        "",
        r"Enter sends; Alt-Enter, or \ at the end of a line, begins another line. ↑ brings back what was said.",
        "What you send while a turn is under way is taken up after it.",
        "Ctrl-C ends the turn that is under way; at an empty prompt it leaves, as Ctrl-D does.",
    ]


CLOSING_S = 15.0
"""For which the end of a session is waited for that was closed."""

MAX_RESENDS = 5
"""Times ten seconds that a worker has to take a message."""


CarryOut = Callable[["Chat", CommandCall], Awaitable[None]]


class Chat:
    """Talks in one session."""

    def __init__(self, parts: ChatParts, carry_out: CarryOut) -> None:
        self.session = parts.session
        self.shown = parts.shown
        self.turns = SessionTurns()
        self.code = int(ExitCode.COMPLETED)
        """Of the last turn that was not completed; of those that a script has said."""
        self._ended_event = asyncio.Event()
        self.has_said = False
        """Whether something was sent that was not refused."""
        self._parts = parts
        self._carry_out = carry_out
        self._next_sequence = 0
        self._turn_endings: dict[int, asyncio.Future[TurnReason]] = {}
        """Why a turn ended; it may have before its number is known here."""
        self._is_posting = False
        self._is_script_waiting = False
        """Whether a script waits for what becomes of a line."""
        self._queued_turns = set[int]()
        self._interrupted = False
        self._interrupt_tasks = set[asyncio.Task[None]]()

    async def catch_up(self) -> None:
        """Take in what was said before, and show nothing of it."""
        async for entry in read_journal(self._parts.client, self.session.id):
            self.turns.take(entry)
            self._parts.watch.take(entry)
            self._next_sequence = entry.sequence + 1

    async def talk(self) -> int:
        """Talk until somebody leaves or the session ends, and return the exit code."""
        following, speaking = asyncio.create_task(self._follow()), asyncio.create_task(self._read_and_send())
        left = asyncio.get_running_loop().create_future()

        def at_signal() -> None:
            if self.ctrl_c() != "interrupts" and not left.done():
                left.set_result(CTRL_C_EXIT_CODE)

        try:
            async with self._parts.watch.beside():
                with ctrl_c_handler(at_signal):
                    await asyncio.wait({following, speaking, left}, return_when=asyncio.FIRST_COMPLETED)
                if left.done():
                    return left.result()
                if speaking.done():
                    return speaking.result()
                following.result()
                self._ended_event.set()
                return await speaking if self._is_script_waiting else self.code
        finally:
            for task in (following, speaking, *self._interrupt_tasks):
                task.cancel()
            await asyncio.gather(following, speaking, *self._interrupt_tasks, return_exceptions=True)

    async def say(self, text: str, when_busy: WhenBusy = "enqueue") -> None:
        """Say something; one by one, wait until it is answered."""
        waits = self.is_busy and when_busy == "enqueue"
        turn = await self._post(text, when_busy)
        end = self._turn_ending(turn)
        self.shown.is_busy = self.is_busy
        if not self.is_typed:
            self.code = ending_exit_code(await self._wait_for_turn(turn)) or self.code
        elif waits and not end.done():
            self._queued_turns.add(turn)
            self.shown.note(f"turn {turn} waits: it begins when those before it have ended")

    @property
    def has_ended(self) -> bool:
        """Whether the session has, and all of its journal was taken in."""
        return self._ended_event.is_set()

    async def until_over(self) -> None:
        """Wait until a session that was closed has ended, for as long as a worker may take: ours leaves with us."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended_event.wait(), CLOSING_S)

    @property
    def is_typed(self) -> bool:
        """Whether a person types what is said."""
        return self._parts.manner == "typed"

    @property
    def is_busy(self) -> bool:
        """Whether a turn is under way, or is due, or something is being sent."""
        return (
            self._is_posting
            or self.turns.under_way is not None
            or any(not end.done() for end in self._turn_endings.values())
        )

    def ctrl_c(self) -> CtrlCEffect:
        """End the turn that is under way; who presses it twice wants to leave."""
        if not self.is_busy:
            return "clears"
        if self._interrupted:
            return "leaves"
        self._interrupted = True
        errand = asyncio.create_task(self._interrupt())
        self._interrupt_tasks.add(errand)
        errand.add_done_callback(self._interrupt_tasks.discard)
        return "interrupts"

    async def _post(self, text: str, when_busy: WhenBusy) -> int:
        has_said, self.has_said, self._is_posting = self.has_said, True, True
        try:
            return await self._send_until_taken(text, when_busy)
        except OrgaError:
            self.has_said = has_said
            raise
        finally:
            self._is_posting = False

    async def _send_until_taken(self, text: str, when_busy: WhenBusy) -> int:
        """Return the turn of a message; one not taken in time is sent again under its id, so it counts once."""
        message_id = str(uuid_utils.uuid7())
        for _ in range(MAX_RESENDS):
            try:
                return await self.session.post(text, when_busy=when_busy, message_id=message_id)
            except (NotTakenYet, ServerLost):
                self.shown.note("it is not known to be taken yet, and is sent again")
        return await self.session.post(text, when_busy=when_busy, message_id=message_id)

    async def _interrupt(self) -> None:
        self.shown.note("interrupting the turn… (Ctrl-C again leaves, and the session goes on)")
        try:
            await self.interrupt("Ctrl-C in the chat")
        except (OrgaError, RPCError) as error:
            self.shown.note(f"not interrupted: {error}")

    async def interrupt(self, why: str) -> None:
        """Cut the turn that is shown as under way, and none that has begun meanwhile.

        Raises:
            Refused: It has ended, or none is under way.
        """
        shown = self.turns.under_way
        await self.session.interrupt(why, turn=shown.number if shown else None)

    async def _read_and_send(self) -> int:
        while not self.has_ended:
            try:
                line = await self._parts.source.read(self.ctrl_c)
                self._is_script_waiting = not self.is_typed
                await self._handle_line(line)
                self._is_script_waiting = False
            except ChatExit as left:
                return left.code or self.code
            except (OrgaError, UsageError, RPCError) as error:
                if not self.is_typed:
                    return self._script_exit_code(error)
                self.shown.lines(*hanging_lines("orga: ", str(error)))
        if self._parts.source.has_more():
            return self._script_exit_code(RunEnded(self.session.id))
        return self.code

    def _script_exit_code(self, error: Exception) -> int:
        """Return how a script ends that cannot say all its lines; of a session that has ended as it did until then."""
        if not isinstance(error, RunEnded | SessionClosed):
            raise error
        if self.code:
            return self.code
        raise RunEnded(self.session.id)

    async def _handle_line(self, line: str) -> None:
        meant = ChatMessage(line) if self._parts.manner == "one" else parse_line(line)
        if isinstance(meant, CommandCall):
            await self._carry_out(self, meant)
        elif not self.shown.answers(meant.text) and meant.text:
            await self.say(meant.text)

    async def _follow(self) -> None:
        async for event in self.session.events(after=self._next_sequence - 1):
            if isinstance(event, JournalEntry):
                await self._show_entry(event)
            else:
                self._parts.watch.take(event)

    async def _show_entry(self, entry: JournalEntry) -> None:
        self._parts.watch.take(entry)
        for line in self.turns.take(entry):
            self.shown.told(line, entry.timestamp)
        if not self.turns.told:
            return
        turn = self.turns.told[-1]
        if entry.event == TURN_STARTED:
            self._interrupted = False
            if turn.number not in self._turn_endings or turn.number in self._queued_turns:
                self.shown.note(turn_summary(turn))
        if entry.event == TURN_ENDED:
            self._interrupted = False
            await self._show_turn_end(turn.number)
        self.shown.is_busy = self.is_busy

    async def _show_turn_end(self, turn: int) -> None:
        try:
            result = await self.session.result_of(turn)
            self.shown.ended(result)
            reason = result.termination.reason
        except TurnUnknown as error:  # a session keeps its last turns, and nobody looked here for longer than that
            told = self.turns.ended(turn)
            self.shown.lines(*history_lines([told], datetime.now(UTC)), f"orga: {error}")
            reason = cast("TurnReason", told.reason)
        if not (end := self._turn_ending(turn)).done():
            end.set_result(reason)

    async def _wait_for_turn(self, turn: int) -> TurnReason:
        """Wait until a turn has ended and return why; one that the session's end leaves aside is answered, too."""
        end, over = self._turn_ending(turn), asyncio.create_task(self._ended_event.wait())
        await asyncio.wait({end, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not end.done():
            await self._show_turn_end(turn)
        return end.result()

    def _turn_ending(self, turn: int) -> asyncio.Future[TurnReason]:
        return self._turn_endings.setdefault(turn, asyncio.get_running_loop().create_future())


HISTORY_TURNS = 5
"""Turns that `/history` shows without a number."""
UNFOLDED_CHARS = 4_000
"""Of one result, in `/tools`."""


async def carry_out(chat: Chat, asked: CommandCall) -> None:
    """Do what one command says.

    Raises:
        Left: It says to leave.
        UsageError: It cannot be done now.
    """
    await _COMMAND_HANDLERS[asked.name](chat, asked.argument)


async def _help(chat: Chat, _: str) -> None:
    chat.shown.lines(*help_lines())


async def _steer(chat: Chat, text: str) -> None:
    if not chat.is_busy:
        raise UsageError("no turn is under way that could be steered: say it as it is")
    await chat.say(text, "steer")
    chat.shown.note("the turn under way reads it at its next step")


async def _interrupt(chat: Chat, text: str) -> None:
    if text:
        await chat.say(text, "interrupt")
    else:
        await chat.interrupt("/interrupt in the chat")


async def _tools(chat: Chat, _: str) -> None:
    messages = last_turn_messages(await chat.session.conversation())
    if not any(message.calls or message.tool for message in messages):
        raise UsageError("the last turn has called no tool")
    chat.shown.lines(*separated_blocks(message_lines(_bounded_message(message)) for message in messages))


async def _status(chat: Chat, _: str) -> None:
    chat.shown.lines(*status_lines(chat.session.id, await chat.session.status()))


async def _budget(chat: Chat, _: str) -> None:
    status = await chat.session.status()
    if not isinstance(status, SessionStatus):
        return
    last = () if status.turn else (await chat.session.turns())[-1:]
    chat.shown.lines(*budget_lines(status, last[0] if last else None))


def budget_lines(status: SessionStatus, last: TurnResult | None) -> list[str]:
    """Return what the turn under way has spent of its limits, between turns the last one; and what all have spent."""
    budgets = status.budgets
    spends = (
        (
            "iterations",
            last.iterations if last else budgets.max_iterations - budgets.iterations,
            budgets.max_iterations,
        ),
        (
            "tokens",
            last.usage.total_tokens if last else budgets.max_total_tokens - budgets.tokens,
            budgets.max_total_tokens,
        ),
        ("s", last.duration_s if last else budgets.timeout_s - budgets.time_s, budgets.timeout_s),
    )
    which = f"turn {status.turn or (last.turn if last else 0)}"
    return [
        f"{which}: {', '.join(f'{used:.0f} of {limit:.0f} {unit}' for unit, used, limit in spends)}",
        *([f"calls: {calls}"] if (calls := call_budgets(budgets)) else []),
        f"in all {count_text(status.turns, 'turn')}: {usage_text(status.usage)}, {call_counts_text(status.tool_calls)}",
    ]


async def _history(chat: Chat, number: str) -> None:
    if number and not (number.isdecimal() and int(number)):
        raise UsageError(f"/history {number}: give the number of turns, as /history {HISTORY_TURNS}")
    told = chat.turns.told[-int(number or HISTORY_TURNS) :]
    chat.shown.lines(*(history_lines(told, datetime.now(UTC)) or ["nothing was said yet"]))


async def _approve(chat: Chat, argument: str) -> None:
    await _decide(chat, argument, approves=True)


async def _deny(chat: Chat, argument: str) -> None:
    await _decide(chat, argument, approves=False)


async def _decide(chat: Chat, argument: str, *, approves: bool) -> None:
    if not chat.is_typed:  # what is piped may have been written by anybody
        raise UsageError("a person decides that, at a terminal, or with: orga approve, orga deny")
    told = chat.shown.calls_told()  # whoever said this had seen no more
    calls = await current_held_calls(chat.session)
    chat.shown.tell_calls(calls)
    chat.shown.lines(*await decide_calls(chat.session, calls, argument, told=told, approves=approves))


async def _close(chat: Chat, _: str) -> None:
    await chat.session.close()
    if chat.is_busy:
        chat.shown.note("the session ends after the turn under way")
    if not (chat.is_typed and chat.is_busy):
        await chat.until_over()


async def _quit(chat: Chat, _: str) -> None:
    raise ChatExit


_COMMAND_HANDLERS: dict[str, Callable[[Chat, str], Awaitable[None]]] = {
    "help": _help,
    "steer": _steer,
    "interrupt": _interrupt,
    "tools": _tools,
    "status": _status,
    "budget": _budget,
    "history": _history,
    "approve": _approve,
    "deny": _deny,
    "close": _close,
    "quit": _quit,
}


def handled_commands() -> Set[str]:
    """Return the names of the commands that are carried out."""
    return _COMMAND_HANDLERS.keys()


def last_turn_messages(messages: list[ShownMessage]) -> list[ShownMessage]:
    """Return what came after the last thing that was said."""
    said = [at for at, message in enumerate(messages) if message.role == "user"]
    return messages[said[-1] + 1 :] if said else []


def _bounded_message(message: ShownMessage) -> ShownMessage:
    if len(message.text) <= UNFOLDED_CHARS:
        return message
    return message.with_text(f"{message.text[:UNFOLDED_CHARS]}… (orga conversation shows all of it)")
