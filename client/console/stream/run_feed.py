"""The feed of one run: each entry of its journal, its state, and the texts of its calls in flight."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from temporalio.service import RPCError

from orga.client.console.doors import Role, Visitor
from orga.client.console.stream.feeds import Feed, Frame, Mark, Sleep, Value, encoded, resync
from orga.client.console.stream.sources import Sources
from orga.client.errors import NotAnAgent, OrgaError, RunNotFound
from orga.client.journal import event_types as on
from orga.client.journal.event_types import JournalEvent
from orga.client.journal.run_view import RunView
from orga.client.journal.timeline_records import IterationRecord, clipped_strings
from orga.client.journal.watcher import JournalReader, LiveActivity, Watcher, parse_position, shared_watcher
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import JournalEntry

logger = logging.getLogger(__name__)

AGAIN_S = 1.0
"""Seconds until something that failed is tried again."""
ENDED_LOOK_S = 5.0
"""Seconds between two reads of an ended run, which a rewind may continue."""
MAX_MISSED = 1_000
"""Entries that a viewer may miss and still get one by one. After more, it reads the snapshot again."""
MAX_MISSED_BYTES = 1_000_000
"""Bytes of entries that a connected viewer may miss and still get one by one."""
MAX_LOG_BYTES = 8_000_000
"""Bytes of the entries of one run that are kept."""
BATCH_BYTES = 64_000
"""Bytes of entries that a viewer gets at once."""
STATE_S = 0.2
"""Seconds between two reads of the state of a run while it changes."""
HELP_LOOK_S = 3.0
"""Seconds between two checks whether a live run has a worker or is stuck."""
UNKNOWN_CURSOR_S = 2.0
"""Seconds to wait for an entry that a viewer has and the watcher has not read yet."""
RECENT_ACTIONS = 20
"""Latest actions that a new viewer gets, because it may have sent one just before."""
FROM_NOW = -2
"""The mark of a viewer that came without a position. It gets the entries from now on."""
NOWHERE = -1
"""The mark of a viewer whose position this feed does not know. It has to read the snapshot again."""

ACTION_STATES: Mapping[type[JournalEvent], str] = {
    on.InterventionReceived: "received",
    on.InterventionRefused: "refused",
    on.InterventionApplied: "applied",
}

QUESTIONS = (on.ApprovalRequested, on.ApprovalResolved, on.QuestionAsked, on.QuestionAnswered)


class LoggedEntry(NamedTuple):
    """An entry of the journal, encoded once for all viewers."""

    entry: JournalEntry
    data: bytes
    """The entry as JSON."""
    action: bytes
    """The data of its event `action`, or b"" if it has none."""


@dataclass
class RunMark(Mark):
    next: int = FROM_NOW
    cursor: str = ""
    """The cursor that the viewer came with, until the feed has found the cursor's entry."""
    gives_up_at: float | None = None
    """The time by the feed's clock at which the feed stops waiting for that entry."""
    state: bytes = b""
    """The latest state that the viewer has."""
    live: int = 0
    """The revision of the latest calls in flight that the viewer has."""
    execution: int = 0
    """The execution of the run that the viewer was allowed to see."""


class RunFeed(Feed[RunMark]):
    """The newest entries of a run's journal, its newest state, and its calls in flight."""

    def __init__(self, topic: str, sources: Sources, now: Callable[[], float]) -> None:
        """Create the feed of `run:ID`. `now` is the clock, in seconds."""
        super().__init__(topic)
        self.run_id = topic.removeprefix("run:")
        self._sources, self._now = sources, now
        self._view = RunView()
        self._log: deque[LoggedEntry] = deque()
        self._log_bytes = 0
        self._total = 0
        """The number of the next entry. Numbers start at 0, and the log has only the latest entries."""
        self._state: dict[str, Any] | None = None
        self._states: dict[tuple[Role, ...], bytes] = {}
        """By roles, which decide about controls: the state as JSON."""
        self._is_changed = asyncio.Event()
        """Set when the state has to be read again."""
        self._has_news = False
        self._live = Value()
        self._records: dict[int, IterationRecord | None] = {}
        """The record of each entry, by the entry's sequence, until something changes."""
        self._execution = 0
        self._is_ready = False
        """True once everything is read that existed when the reading began."""
        self._is_missing = False

    @property
    def position(self) -> str:
        return self._log[-1].entry.cursor if self._log else ""

    @property
    def _first(self) -> int:
        return self._total - len(self._log)

    def mark(self, visitor: Visitor, position: str) -> RunMark:
        try:
            parse_position(position)
        except InvalidInput:
            return RunMark(visitor, NOWHERE, execution=self._execution)
        return RunMark(visitor, is_returning=bool(position), cursor=position, execution=self._execution)

    def frames(self, mark: RunMark) -> Iterator[Frame]:
        if self._is_missing or mark.execution != self._execution:
            mark.is_over, mark.is_missing = True, self._is_missing
            yield resync(self.topic)
        elif self._is_ready and self._resolve_cursor(mark):
            if mark.next == FROM_NOW:
                mark.next = self._total
                actions = [logged.action for logged in self._log if logged.action]
                yield from (Frame("action", action, self.position) for action in actions[-RECENT_ACTIONS:])
            if mark.next < self._first or self._is_too_far(mark):
                mark.next, mark.is_returning = self._total, False
                yield resync(self.topic, self.position)
            yield from self._entries(mark)
            if mark.next == self._total:
                mark.is_returning = False
                yield from self._values(mark)

    def _resolve_cursor(self, mark: RunMark) -> bool:
        """Find the next entry of a viewer with a cursor. Return False while the cursor's entry may not be read yet."""
        if not mark.cursor:
            return True
        position = parse_position(mark.cursor)
        newest = self._log[-1].entry.sequence if self._log else -1
        if position.sequence > newest:
            if mark.gives_up_at is None:
                mark.gives_up_at = self._now() + UNKNOWN_CURSOR_S
                asyncio.get_running_loop().call_later(UNKNOWN_CURSOR_S, self.notify)
            if self._now() < mark.gives_up_at:
                return False
        mark.next, mark.cursor = self._number_after(position.sequence, position.hash), ""
        return True

    def _number_after(self, sequence: int, digest: str) -> int:
        """Return the number of the entry after this one, or NOWHERE if the log does not have this one."""
        if not self._log:
            return NOWHERE
        index = sequence - self._log[0].entry.sequence
        if index == -1 and sequence == -1:  # before the first entry of the journal
            return self._first
        is_known = 0 <= index < len(self._log) and self._log[index].entry.hash.startswith(digest)
        return self._first + index + 1 if is_known else NOWHERE

    def _is_too_far(self, mark: RunMark) -> bool:
        """Return whether a connected viewer has missed too much. A viewer that comes back gets all that the log has."""
        if mark.is_returning or self._total - mark.next <= 1:
            return False
        missed = (self._log[number - self._first] for number in range(mark.next, self._total))
        return sum(len(logged.data) for logged in missed) > MAX_MISSED_BYTES

    def _entries(self, mark: RunMark) -> Iterator[Frame]:
        room = BATCH_BYTES
        while mark.next < self._total and room > 0:
            index = mark.next - self._first
            logged = self._log[index]
            entry, record = logged.entry, self._record(logged.entry)
            following = self._record(self._log[index + 1].entry) if index + 1 < len(self._log) else None
            is_last_of_iteration = not (record and following and record.number == following.number)
            record = record if is_last_of_iteration else None
            data = b'{"run":%b,"entry":%b,"record":%b}' % (encoded(self.run_id), logged.data, encoded(record))
            mark.next += 1
            room -= len(data)
            yield Frame("entry", data, entry.cursor)
            if logged.action:
                yield Frame("action", logged.action, entry.cursor)

    def _record(self, entry: JournalEntry) -> IterationRecord | None:
        if entry.sequence not in self._records:
            self._records[entry.sequence] = self._sources.record(self.run_id, entry)
        return self._records[entry.sequence]

    def _values(self, mark: RunMark) -> Iterator[Frame]:
        if (state := self._state_for(mark.visitor)) != mark.state:
            mark.state = state
            yield Frame("state", state, self.position)
        if mark.live != self._live.revision:
            mark.live = self._live.revision
            yield Frame("live", self._live.data, self.position)

    def _state_for(self, visitor: Visitor) -> bytes:
        if self._state is None:
            return b""
        if visitor.roles not in self._states:
            self._states[visitor.roles] = encoded(self._sources.state_for(visitor, self._state))
        return self._states[visitor.roles]

    async def follow(self, sleep: Sleep) -> None:
        states = asyncio.create_task(self._read_states(sleep))
        try:
            await self._follow_executions(sleep)
        finally:
            states.cancel()

    async def _read_states(self, sleep: Sleep) -> None:
        """Read the state after each change, but at most every `STATE_S`."""
        while True:
            await self._wait_for_change()
            self._is_changed.clear()
            try:
                state = await self._sources.state(self.run_id, self._view)
            except (RPCError, OrgaError):  # the server is away
                self._is_changed.set()
                await sleep(AGAIN_S)
                continue
            except Exception:
                logger.exception("the state of %r cannot be shown", self.run_id)
                continue
            if state != self._state:
                self._state = state
                self._states.clear()
                self.notify()
            await sleep(STATE_S)

    async def _wait_for_change(self) -> None:
        """Wait for an entry, or for a change that no entry shows: a worker comes or goes, or the run gets stuck."""
        while True:
            is_live = self._state is not None and self._state["ended"] is None
            with suppress(TimeoutError):
                async with asyncio.timeout(HELP_LOOK_S if is_live else None):
                    await self._is_changed.wait()
                return
            with suppress(RPCError, OrgaError):
                if self._state is not None and not await self._sources.is_current(self.run_id, self._state):
                    return

    async def _follow_executions(self, sleep: Sleep) -> None:
        while True:
            try:
                async with shared_watcher(self._sources.client, self.run_id) as watcher:
                    await self._follow_execution(watcher)
                    await self._wait_for_rewind(watcher.timelines[-1].run_id, sleep)
            except (RunNotFound, NotAnAgent):
                self._is_missing = True
                self.notify()
                return
            except (RPCError, OrgaError):  # the server is away, or cannot read the run now
                await sleep(AGAIN_S)

    async def _follow_execution(self, watcher: Watcher) -> None:
        reader = JournalReader(watcher, parse_position(self.position))
        while True:
            changed, is_over = watcher.changed, watcher.is_over
            is_rewound = False
            async for event in reader.new_events():
                if not isinstance(event, JournalEntry):
                    continue
                if is_rewound := bool(self._log) and event.sequence <= self._log[-1].entry.sequence:
                    break
                self.take(event)
            if is_rewound:
                self.forget()
                reader = JournalReader(watcher, parse_position(""))
                continue
            self.take_live(list(watcher.live_activities().values()))
            if is_over or watcher.is_at_end:
                self.publish()
            if is_over:
                watcher.raise_fault()
                return
            await changed.wait()

    async def _wait_for_rewind(self, ended: str, sleep: Sleep) -> None:
        """Wait until the run has another execution than the ended one."""
        handle = self._sources.client.get_workflow_handle(self.run_id)
        while (await handle.describe()).run_id == ended:
            await sleep(ENDED_LOOK_S)
        self._execution += 1
        self.notify()

    def forget(self) -> None:
        """Begin the journal again, because the run was rewound. All viewers get a `resync`."""
        self._view = RunView()
        self._log.clear()
        self._records.clear()
        self._log_bytes = 0
        self._total += 1
        self._is_ready = False

    def take(self, entry: JournalEntry) -> None:
        """Add the next entry of the journal."""
        event = self._view.take(entry).event
        logged = LoggedEntry(entry, encoded(entry_json(entry)), self._action(entry, event))
        self._log.append(logged)
        self._total += 1
        self._log_bytes += len(logged.data)
        # one entry more than a viewer may miss, so that the last one that the viewer has is known
        while len(self._log) > MAX_MISSED + 1 or self._log_bytes > MAX_LOG_BYTES:
            oldest: LoggedEntry = self._log.popleft()
            self._log_bytes -= len(oldest.data)
        self._has_news = True
        if self._is_ready and isinstance(event, QUESTIONS):
            self._sources.note_question()

    def take_live(self, activities: Sequence[LiveActivity]) -> None:
        shown = [activity.model_dump(mode="json", exclude={"is_over"}) for activity in activities]
        self._live.set({"run": self.run_id, "activities": shown})

    def publish(self) -> None:
        """Make viewers read what was taken."""
        if self._has_news:
            self._has_news = False
            self._is_changed.set()
        self._records.clear()
        self._is_ready = True
        self.notify()

    def _action(self, entry: JournalEntry, event: JournalEvent) -> bytes:
        state, data = ACTION_STATES.get(type(event)), entry.data
        if state is None or entry.run or not data.get("id"):
            return b""
        action = {
            "run": self.run_id,
            "id": data["id"],
            "kind": data.get("kind"),
            "by": data.get("by"),
            "state": "refused" if data.get("refused") else state,
            "phase": data.get("phase"),
            "iteration": data.get("iteration", entry.iteration),
            "detail": data.get("reason") or data.get("refused"),
        }
        return encoded(action)


def entry_json(entry: JournalEntry) -> dict[str, Any]:
    """Return an entry as the interface shows it. Long texts in its data are cut."""
    return {
        "sequence": entry.sequence,
        "event": entry.event,
        "at": entry.timestamp,
        "iteration": entry.iteration,
        "data": clipped_strings(entry.data),
        "cursor": entry.cursor,
        "run": entry.run or None,
    }
