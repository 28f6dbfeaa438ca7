"""Follows a run live: its journal entries, and its running activities with the text that streams in.

One watcher reads a run for all its readers in this process. It reads the history by a long poll, and queries activities
only while the history shows running ones. So a run that waits for a person costs one open request. The journal comes
from the history, and live activities come from heartbeats, so watching a run adds no event to it.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

from google.protobuf.timestamp_pb2 import Timestamp
from pydantic_core import from_json
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from orga.client.errors import OrgaError, ServerLost
from orga.client.history.values import decode_payloads, recorded_failure_text, run_converters
from orga.client.journal.reading import ObservedEvent, SeenEntries, read_journal
from orga.client.journal.timeline_fold import TimelineFold
from orga.workflows.types.json_text import as_count, as_object, as_text
from orga.workflows.types.record import InvalidInput, Record, replace_fields
from orga.workflows.types.status import Happening, JournalEntry

LOST_SERVER_S = 60.0
"""Seconds without a server after which a watcher gives up."""

STABLE_CONNECTION_S = 15.0
"""Seconds. After a connection that lasted longer, the wait for a lost server begins again."""

AGAIN_S = 1.0
"""Seconds between two attempts to reach a lost server."""

FIRST_LOOK_S, LAST_LOOK_S = 0.3, 1.0
"""Shortest and longest seconds between two queries of activities. The pause grows while nothing changes."""

KEPT_ENTRIES, KEPT_BYTES = 1_000, 4_000_000
"""Limits of a watcher. At twice a limit, it drops the older half of its entries. The history still has them."""


class LiveActivity(Record):
    """A model call with its text so far, or a tool call, while it runs. It is not part of the journal.

    It is yielded whenever it changes, and a last time with `is_over`. Then the journal has its outcome.
    """

    run: str
    """The id of the run that has this activity: the followed run, or one of its delegates."""
    activity_id: str
    """Unique in its run while the activity is running."""
    name: str
    """`reason` or another goal prompt, or the name of a tool."""
    attempt: int = 1
    """Number of the attempt, from 1."""
    text: str = ""
    """The end of the model's text so far, at most 8,192 bytes. For a tool, its latest note."""
    text_length: int = 0
    """Characters of the whole text so far."""
    thinking: str = ""
    """The end of the model's thinking so far, at most 8,192 bytes, if its provider shows it."""
    thinking_length: int = 0
    """Characters of all the thinking so far."""
    failure: str = ""
    """Why the previous attempt failed."""
    since: datetime | None = None
    """Start of this attempt. None while it waits for a worker or for a retry."""
    retry_at: datetime | None = None
    """Time of the next attempt, if one has failed."""
    is_over: bool = False
    """True once the activity is no longer running."""

    def over(self) -> Self:
        """Return the same activity at its end."""
        return replace_fields(self, {"is_over": True})


RunEvent = JournalEntry | LiveActivity


async def run_events(client: Client, workflow_id: str, after: int | str | None = None) -> AsyncGenerator[RunEvent]:
    """Yield what happens in a run until it ends, as `AgentHandle.events` describes it."""
    start = parse_position(after)
    async with shared_watcher(client, workflow_id) as watcher:
        reader = JournalReader(watcher, start)
        while True:
            changed, is_over = watcher.changed, watcher.is_over  # read first, so that a change meanwhile is not missed
            async for event in reader.new_events():
                yield event
            if is_over:
                watcher.raise_fault()
                return
            await changed.wait()


class Position(NamedTuple):
    """The last entry that a reader has seen."""

    sequence: int = -1
    hash: str = ""
    """The beginning of its hash, or "" if only its sequence is known."""


_AFTER = re.compile(r"(-1|\d{1,15})(?:-([0-9a-f]+))?")


def parse_position(after: int | str | None) -> Position:
    if after is None or after == "":
        return Position()
    if found := _AFTER.fullmatch(str(after)):
        return Position(int(found[1]), found[2] or "")
    problem = "is neither the sequence nor the cursor of a journal entry. Pass entry.sequence or entry.cursor"
    raise InvalidInput(f"after: {after!r} {problem}")


_Key = tuple[str, str]
"""A run, and the id of one of its activities."""


class JournalReader:
    """The position of one reader in the journal of a watcher."""

    def __init__(self, watcher: "Watcher", start: Position) -> None:
        self._watcher = watcher
        self._next = start.sequence + 1
        self._start: Position | None = start
        """The entry after which to begin. None once it is known whether the journal still has it."""
        self._rewinds = len(watcher.rewinds)
        """The number of rewinds that this reader has followed."""
        self._yielded: dict[_Key, LiveActivity] = {}

    async def new_events(self) -> AsyncGenerator[RunEvent]:
        """Yield what is new for this reader: finished activities, then entries, then changed activities."""
        watcher = self._watcher
        for key in self._yielded.keys() - watcher.live_activities().keys():
            yield self._yielded.pop(key).over()
        while self._update_position() and self._next < watcher.total:
            if self._next < watcher.first_kept:
                async for entry in self._read_dropped():
                    yield entry
            else:
                entry = watcher.kept[self._next - watcher.first_kept]
                self._next += 1
                yield entry
        for key, activity in watcher.live_activities().items():
            if self._yielded.get(key) != activity:
                self._yielded[key] = activity
                yield activity

    def _update_position(self) -> bool:
        """Follow rewinds, and begin after the start. Return False if it is not read yet whether the start exists."""
        watcher = self._watcher
        self._next = min([self._next, *watcher.rewinds[self._rewinds :]])
        self._rewinds = len(watcher.rewinds)
        if self._start is None:
            return True
        is_start_read = self._start.sequence < watcher.total
        if not (is_start_read or watcher.is_at_end or watcher.is_over):
            return False
        if not watcher.has_entry(self._start):
            self._next = 0
        self._start = None
        return True

    async def _read_dropped(self) -> AsyncGenerator[JournalEntry]:
        self._watcher.raise_fault()
        before = self._next
        with suppress(ServerLost):  # the watcher waits for the server and decides when to give up
            async for entry in self._watcher.entries():
                if entry.sequence >= self._watcher.first_kept:
                    break
                if entry.sequence >= self._next:
                    self._next = entry.sequence + 1
                    yield entry
        if self._next == before:
            await asyncio.sleep(AGAIN_S)


_WATCHERS: WeakKeyDictionary[Client, dict[tuple[asyncio.AbstractEventLoop, str], "Watcher"]] = WeakKeyDictionary()


@asynccontextmanager
async def shared_watcher(client: Client, workflow_id: str) -> AsyncGenerator["Watcher"]:
    """Yield the watcher of a run. All readers in this event loop share it, and it stops after the last one."""
    watchers = _WATCHERS.setdefault(client, {})
    key = (asyncio.get_running_loop(), workflow_id)
    watcher = watchers.get(key)
    if watcher is None or watcher.is_over:
        watcher = watchers[key] = Watcher(client, workflow_id)
    watcher.readers += 1
    try:
        yield watcher
    finally:
        watcher.readers -= 1
        if not watcher.readers:
            if watchers.get(key) is watcher:
                del watchers[key]
            await watcher.stop()


def followed_timelines(client: Client, workflow_id: str) -> Sequence[TimelineFold]:
    """Return the timelines of a run's last segments, as far as the run was read by those who follow it in this loop."""
    watcher = _current_watcher(client, workflow_id)
    return watcher.timelines if watcher else ()


def current_timelines(client: Client, workflow_id: str) -> Sequence[TimelineFold]:
    """As `followed_timelines`, but return none until the run is read up to now."""
    watcher = _current_watcher(client, workflow_id)
    return watcher.timelines if watcher and watcher.is_current else ()


def _current_watcher(client: Client, workflow_id: str) -> "Watcher | None":
    return _WATCHERS.get(client, {}).get((asyncio.get_running_loop(), workflow_id))


class Watcher:
    """Reads one run for all its readers."""

    def __init__(self, client: Client, workflow_id: str) -> None:
        """Start to read. `stop` ends it."""
        self._client, self._id = client, workflow_id
        self.readers = 0
        self.total = 0
        """The number of entries read so far."""
        self.kept: list[JournalEntry] = []
        """The newest entries. The first one has the sequence `first_kept`."""
        self._kept_sizes: list[int] = []
        self._kept_bytes = 0
        self.rewinds: list[int] = []
        """Sequences, one for each rewind: that of the first entry that it replaced."""
        self.is_at_end = False
        """True once everything is read that existed when the reading began."""
        self.is_current = False
        """True if the history was read up to now, so that `_under_way` is complete."""
        self.timelines: list[TimelineFold] = []
        """The timelines of the last segment, and of earlier segments that share an iteration with it."""
        self.is_over = False
        self.changed = asyncio.Event()
        """Set, and replaced by a new event, whenever there is news."""
        self._seen_entries = SeenEntries()
        self._fault: Exception | None = None
        self._converters = run_converters(client, workflow_id)
        self._under_way: dict[str, DataConverter] = {}
        """The converters for the heartbeats and failures of running activities, by activity id."""
        self._live: dict[_Key, LiveActivity] = {}
        self._wake_poller = asyncio.Event()
        self._delegates: set[str] = set()
        self._delegate_tasks: dict[str, asyncio.Task[None]] = {}
        """The tasks that follow the delegates."""
        self._delegate_watchers: dict[str, Watcher] = {}
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._poll_activities())]

    @property
    def first_kept(self) -> int:
        """The sequence of the first kept entry."""
        return self.total - len(self.kept)

    def has_entry(self, start: Position) -> bool:
        """Return whether the journal, as far as it was read, has this entry."""
        if start.sequence >= self.total:
            return False
        return start.sequence < 0 or self._seen_entries.hash_at(start.sequence).startswith(start.hash)

    def live_activities(self) -> dict[_Key, LiveActivity]:
        """Return the running activities of the run and its delegates."""
        activities = dict(self._live)
        for watcher in self._delegate_watchers.values():
            activities |= watcher.live_activities()
        return activities

    def entries(self) -> AsyncGenerator[JournalEntry]:
        """Read the journal again from its start."""
        return read_journal(self._client, self._id)

    def raise_fault(self) -> None:
        """Raise the error that ended the reading, if there was one."""
        if self._fault is not None:
            raise self._fault

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._delegate_tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        try:
            await self._read_until_end()
        except Exception as error:  # it is raised in the readers
            self._fault = error
        self.is_over = True
        self._end_all()
        self._notify()

    async def _read_until_end(self) -> None:
        """Read the journal until the run ends. Wait for a lost server, at most `LOST_SERVER_S`."""
        deadline = monotonic() + LOST_SERVER_S
        while True:
            self.is_current, began = False, monotonic()
            try:
                async for entry in read_journal(
                    self._client, self._id, follow=True, seen=self._seen_entries, observe=self._observe
                ):
                    deadline = monotonic() + LOST_SERVER_S
                    self._keep_entry(entry)
            except ServerLost:
                if self.is_current and monotonic() - began > STABLE_CONNECTION_S:  # the server was there without news
                    deadline = monotonic() + LOST_SERVER_S
                if monotonic() > deadline:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                return

    def _keep_entry(self, entry: JournalEntry) -> None:
        """Keep the next entry. After a rewind, it replaces an earlier entry and all later ones."""
        if (replaced := self.total - entry.sequence) > 0:
            self.rewinds.append(entry.sequence)
            self._kept_bytes -= sum(self._kept_sizes[-replaced:])
            del self.kept[-replaced:], self._kept_sizes[-replaced:]
        self.total = entry.sequence + 1
        if entry.event == "Terminated" and not entry.run:
            self._end_all()
        self.kept.append(entry)
        self._kept_sizes.append(len(repr(entry.data)))
        self._kept_bytes += self._kept_sizes[-1]
        while self._has_too_many_entries():
            half = len(self.kept) // 2
            self._kept_bytes -= sum(self._kept_sizes[:half])
            del self.kept[:half], self._kept_sizes[:half]
        self._notify()

    def _has_too_many_entries(self) -> bool:
        """Return whether the kept entries have reached twice a limit. A single entry is always kept."""
        return len(self.kept) >= 2 * KEPT_ENTRIES or (len(self.kept) > 1 and self._kept_bytes > 2 * KEPT_BYTES)

    def _observe(self, observed: ObservedEvent) -> None:
        """Record which activities and delegates are running, and continue the timeline of the live segment."""
        event, happening = observed.event, observed.happening
        if observed.later_segments <= 1:  # the last segment, and the one before it: they can share an iteration
            self._continue_timeline(observed)
        if event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
            self._delegates.add(event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id)
        elif happening is not None:
            self._record_running(event, happening)
        if observed.is_latest:
            self.is_current = self.is_at_end = True
            self._follow_delegates()
            self._wake_poller.set()
            self._notify()

    def _record_running(self, event: HistoryEvent, happening: Happening) -> None:
        match happening.kind:
            case "started":
                self._converters = replace(self._converters, workflow_type=happening.name)
                self.is_current = False
                self._under_way.clear()
                self._delegates.clear()
            case "scheduled":
                scheduled = event.activity_task_scheduled_event_attributes
                self._under_way[happening.key] = self._converters.for_activity(scheduled)
            case "finished" | "failed" | "cancelled":
                self._under_way.pop(happening.key, None)
                self._live.pop((self._id, happening.key), None)
            case "child_finished" | "child_failed":
                self._drop_delegate(happening.key)
            case _:
                pass

    def _continue_timeline(self, observed: ObservedEvent) -> None:
        if observed.happening is not None and observed.happening.kind == "started":
            previous = observed.event.workflow_execution_started_event_attributes.continued_execution_run_id
            if not self.timelines or self.timelines[-1].run_id != previous:
                self.timelines = []
            self.timelines = [*self.timelines, TimelineFold(observed.run_id)]
        if observed.happening is not None and self.timelines:
            *earlier, last = self.timelines
            last.feed(observed.happening, observed.entries)
            self.timelines = [*(fold for fold in earlier if fold.last >= last.base), last]

    def _end_all(self) -> None:
        """Show no activity as running, because the run has ended."""
        self._live = {}
        for delegate in self._delegates | self._delegate_tasks.keys():
            self._drop_delegate(delegate)

    def _drop_delegate(self, delegate: str) -> None:
        """Stop showing a delegate. The parent's history may show its end before the delegate's own watcher reads it."""
        self._delegates.discard(delegate)
        self._delegate_watchers.pop(delegate, None)
        if task := self._delegate_tasks.pop(delegate, None):
            task.cancel()

    def _follow_delegates(self) -> None:
        for ended in self._delegate_tasks.keys() - self._delegates:
            self._drop_delegate(ended)
        for begun in self._delegates - self._delegate_tasks.keys():
            self._delegate_tasks[begun] = asyncio.create_task(self._follow_delegate(begun))

    async def _follow_delegate(self, workflow_id: str) -> None:
        """Show the activities of a delegate while it runs. Its journal entries follow when it has ended."""
        with suppress(OrgaError):
            async with shared_watcher(self._client, workflow_id) as watcher:
                self._delegate_watchers[workflow_id] = watcher
                try:
                    while not watcher.is_over:
                        changed = watcher.changed
                        self._notify()
                        await changed.wait()
                finally:
                    if self._delegate_watchers.get(workflow_id) is watcher:
                        del self._delegate_watchers[workflow_id]
                    self._notify()

    async def _poll_activities(self) -> None:
        pause_s = FIRST_LOOK_S
        while True:
            self._wake_poller.clear()
            if not (self.is_current and self._under_way):
                await self._wake_poller.wait()
                pause_s = FIRST_LOOK_S
                continue
            has_changed = await self._poll_once()
            pause_s = FIRST_LOOK_S if has_changed else min(pause_s * 1.5, LAST_LOOK_S)
            await asyncio.sleep(pause_s)

    async def _poll_once(self) -> bool:
        """Query activities once, and return whether any has changed."""
        try:
            described = await self._client.get_workflow_handle(self._id).describe()
        except RPCError:  # the task that reads the history waits for the server
            return False
        converters = dict(self._under_way)
        pending = [each for each in described.raw_description.pending_activities if each.activity_id in converters]
        activities = [await _live_activity(self._id, each, converters[each.activity_id]) for each in pending]
        # some may have ended since the query
        live = {(self._id, each.activity_id): each for each in activities if each.activity_id in self._under_way}
        if live == self._live:
            return False
        self._live = live
        self._notify()
        return True

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


async def activities_in_flight(client: Client, described: WorkflowExecutionDescription) -> list[LiveActivity]:
    """Return the running activities in the server's description of a run, without those of its delegates."""
    converters = run_converters(client, described.id, described.workflow_type)
    activities: list[LiveActivity] = []
    for pending in described.raw_description.pending_activities:
        name, activity_id = pending.activity_type.name, pending.activity_id
        converter = converters.for_activity_named(name, activity_id, described.task_queue)
        activities.append(await _live_activity(described.id, pending, converter))
    return activities


async def _live_activity(run: str, pending: PendingActivityInfo, converter: DataConverter) -> LiveActivity:
    is_running = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return LiveActivity(
        run=run,
        activity_id=pending.activity_id,
        name=pending.activity_type.name,
        attempt=pending.attempt,
        failure=await _failure_text(pending, converter),
        since=_time(pending.last_started_time) if is_running else None,
        retry_at=_time(pending.next_attempt_schedule_time) if pending.attempt > 1 and not is_running else None,
        **await _progress_fields(pending.heartbeat_details.payloads, converter),
    )


async def _failure_text(pending: PendingActivityInfo, converter: DataConverter) -> str:
    if not pending.HasField("last_failure"):
        return ""
    try:
        return await recorded_failure_text(converter, pending.last_failure)
    except Exception:  # a codec may raise anything
        return pending.last_failure.message


async def _progress_fields(payloads: Sequence[Payload], converter: DataConverter) -> dict[str, Any]:
    """Return the text and the thinking of an activity so far. An unreadable heartbeat has neither."""
    try:
        details: Any = from_json((await decode_payloads(converter, payloads))[0].data) if payloads else {}
    except Exception:  # a codec may raise anything
        return {}
    progress = as_object(details)
    text, thinking = as_text(progress.get("text") or progress.get("note")), as_text(progress.get("thinking"))
    return {
        "text": text,
        "text_length": max(as_count(progress.get("text_length")), len(text)),
        "thinking": thinking,
        "thinking_length": max(as_count(progress.get("thinking_length")), len(thinking)),
    }


def _time(stamp: Timestamp) -> datetime | None:
    return stamp.ToDatetime(tzinfo=UTC) if stamp.seconds else None
