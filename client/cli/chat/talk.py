"""A chat: what is typed goes into the session, what comes of it is shown, until somebody leaves or the session ends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import cast

import uuid_utils
from temporalio.service import RPCError

from orga.client.cli.chat.commands import Asked, Said, understood
from orga.client.cli.chat.parts import CtrlC, Parts
from orga.client.cli.chat.source import Left
from orga.client.cli.chat.turns import Turns, history_lines, in_short
from orga.client.cli.exit_codes import ExitCode, UsageError, of_ending
from orga.client.cli.interrupts import CTRL_C, in_place_of_leaving
from orga.client.cli.terminal_text import behind
from orga.client.errors import NotTakenYet, OrgaError, RunEnded, ServerLost, SessionClosed, TurnUnknown
from orga.client.journal.reading import read_journal
from orga.workflows.types.sessions.input import WhenBusy
from orga.workflows.types.sessions.result import TURN_ENDED, TURN_STARTED, TurnReason
from orga.workflows.types.status import JournalEntry

CLOSING_S = 15.0
"""For which the end of a session is waited for that was closed."""

MAX_UNTAKEN = 5
"""Times ten seconds that a worker has to take a message."""


CarryOut = Callable[["Chat", Asked], Awaitable[None]]


class Chat:
    """Talks in one session."""

    def __init__(self, parts: Parts, carry_out: CarryOut) -> None:
        self.session = parts.session
        self.shown = parts.shown
        self.turns = Turns()
        self.code = int(ExitCode.COMPLETED)
        """Of the last turn that was not completed; of those that a script has said."""
        self._over = asyncio.Event()
        self.has_said = False
        """Whether something was sent that was not refused."""
        self._parts = parts
        self._carry_out = carry_out
        self._read = 0
        self._ends: dict[int, asyncio.Future[TurnReason]] = {}
        """Why a turn ended; it may have before its number is known here."""
        self._is_posting = False
        self._is_at_it = False
        """Whether a script waits for what becomes of a line."""
        self._queued = set[int]()
        self._interrupted = False
        self._errands = set[asyncio.Task[None]]()

    async def catch_up(self) -> None:
        """Take in what was said before, and show nothing of it."""
        async for entry in read_journal(self._parts.client, self.session.id):
            self.turns.take(entry)
            self._parts.watch.take(entry)
            self._read = entry.sequence + 1

    async def talk(self) -> int:
        """Talk until somebody leaves or the session ends, and return the exit code."""
        following, speaking = asyncio.create_task(self._follow()), asyncio.create_task(self._speak())
        left = asyncio.get_running_loop().create_future()

        def at_signal() -> None:
            if self.ctrl_c() != "interrupts" and not left.done():
                left.set_result(CTRL_C)

        try:
            async with self._parts.watch.beside():
                with in_place_of_leaving(at_signal):
                    await asyncio.wait({following, speaking, left}, return_when=asyncio.FIRST_COMPLETED)
                if left.done():
                    return left.result()
                if speaking.done():
                    return speaking.result()
                following.result()
                self._over.set()
                return await speaking if self._is_at_it else self.code
        finally:
            for task in (following, speaking, *self._errands):
                task.cancel()
            await asyncio.gather(following, speaking, *self._errands, return_exceptions=True)

    async def say(self, text: str, when_busy: WhenBusy = "enqueue") -> None:
        """Say something; one by one, wait until it is answered."""
        waits = self.is_busy and when_busy == "enqueue"
        turn = await self._post(text, when_busy)
        end = self._end_of(turn)
        self.shown.is_busy = self.is_busy
        if not self.is_typed:
            self.code = of_ending(await self._reason(turn)) or self.code
        elif waits and not end.done():
            self._queued.add(turn)
            self.shown.note(f"turn {turn} waits: it begins when those before it have ended")

    @property
    def has_ended(self) -> bool:
        """Whether the session has, and all of its journal was taken in."""
        return self._over.is_set()

    async def until_over(self) -> None:
        """Wait until a session that was closed has ended, for as long as a worker may take: ours leaves with us."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), CLOSING_S)

    @property
    def is_typed(self) -> bool:
        """Whether a person types what is said."""
        return self._parts.manner == "typed"

    @property
    def is_busy(self) -> bool:
        """Whether a turn is under way, or is due, or something is being sent."""
        return (
            self._is_posting or self.turns.under_way is not None or any(not end.done() for end in self._ends.values())
        )

    def ctrl_c(self) -> CtrlC:
        """End the turn that is under way; who presses it twice wants to leave."""
        if not self.is_busy:
            return "clears"
        if self._interrupted:
            return "leaves"
        self._interrupted = True
        errand = asyncio.create_task(self._interrupt())
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)
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
        for _ in range(MAX_UNTAKEN):
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

    async def _speak(self) -> int:
        while not self.has_ended:
            try:
                line = await self._parts.source.read(self.ctrl_c)
                self._is_at_it = not self.is_typed
                await self._take(line)
                self._is_at_it = False
            except Left as left:
                return left.code or self.code
            except (OrgaError, UsageError, RPCError) as error:
                if not self.is_typed:
                    return self._cut_off(error)
                self.shown.lines(*behind("orga: ", str(error)))
        if self._parts.source.has_more():
            return self._cut_off(RunEnded(self.session.id))
        return self.code

    def _cut_off(self, error: Exception) -> int:
        """Return how a script ends that cannot say all its lines; of a session that has ended as it did until then."""
        if not isinstance(error, RunEnded | SessionClosed):
            raise error
        if self.code:
            return self.code
        raise RunEnded(self.session.id)

    async def _take(self, line: str) -> None:
        meant = Said(line) if self._parts.manner == "one" else understood(line)
        if isinstance(meant, Asked):
            await self._carry_out(self, meant)
        elif not self.shown.answers(meant.text) and meant.text:
            await self.say(meant.text)

    async def _follow(self) -> None:
        async for event in self.session.events(after=self._read - 1):
            if isinstance(event, JournalEntry):
                await self._show(event)
            else:
                self._parts.watch.take(event)

    async def _show(self, entry: JournalEntry) -> None:
        self._parts.watch.take(entry)
        for line in self.turns.take(entry):
            self.shown.told(line, entry.timestamp)
        if not self.turns.told:
            return
        turn = self.turns.told[-1]
        if entry.event == TURN_STARTED:
            self._interrupted = False
            if turn.number not in self._ends or turn.number in self._queued:
                self.shown.note(in_short(turn))
        if entry.event == TURN_ENDED:
            self._interrupted = False
            await self._end(turn.number)
        self.shown.is_busy = self.is_busy

    async def _end(self, turn: int) -> None:
        try:
            result = await self.session.result_of(turn)
            self.shown.ended(result)
            reason = result.termination.reason
        except TurnUnknown as error:  # a session keeps its last turns, and nobody looked here for longer than that
            told = self.turns.ended(turn)
            self.shown.lines(*history_lines([told], datetime.now(UTC)), f"orga: {error}")
            reason = cast("TurnReason", told.reason)
        if not (end := self._end_of(turn)).done():
            end.set_result(reason)

    async def _reason(self, turn: int) -> TurnReason:
        """Wait until a turn has ended and return why; one that the session's end leaves aside is answered, too."""
        end, over = self._end_of(turn), asyncio.create_task(self._over.wait())
        await asyncio.wait({end, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not end.done():
            await self._end(turn)
        return end.result()

    def _end_of(self, turn: int) -> asyncio.Future[TurnReason]:
        return self._ends.setdefault(turn, asyncio.get_running_loop().create_future())
