"""Reads the timelines of runs for the console and other front ends: pages of records, single records, texts, searches.

A segment is read only when somebody asks for its records. The live segment comes from the watcher of the run, if
somebody follows the run.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from time import monotonic
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pydantic import ValidationError
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import OrgaError
from orga.client.history.chain import (
    history_error,
    latest_segment,
    model_call_iteration,
    page_from_end,
    previous_segment,
    read_start,
)
from orga.client.history.events import happenings, selected_happenings, start_arguments
from orga.client.history.values import run_converters
from orga.client.journal.segments import ClosedSegment, SegmentCache, SegmentKey
from orga.client.journal.timeline_fold import TimelineFold, event_texts, iterations_before
from orga.client.journal.timeline_records import IterationRecord, SearchLimits, TimelineText, texts_of
from orga.client.journal.watcher import current_timelines, followed_timelines
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.context import DigestMismatch
from orga.workflows.types.names import RUN_WORKFLOWS
from orga.workflows.types.record import InvalidInput, Record
from orga.workflows.types.status import JournalEntry

MAX_PAGE = 100
"""The most records on one page."""

WINDOW = 10
"""The fewest records on a page that is shortened to avoid reading another segment from the server."""

MAX_TEXT_BYTES = 64_000
"""UTF-8 bytes of each text in a single record. A longer text is cut and keeps its reference."""

MAX_FOUND = 100
"""Found places after which a search stops. It always finishes the record that it reads."""

SEARCH_S = 1.0
"""Seconds after which a search returns what it has found so far."""

EXCERPT_CHARS = 80
"""Characters on each side of a found text."""

KEPT_LIVE = 8
"""Live segments kept in memory without a watcher. Each is read again once it has grown."""

KEPT_HEADS = 10_000
"""Beginnings of segments kept in memory. If there are more, all are dropped."""


class NoRecord(OrgaError):
    """The run has no such iteration, or the server no longer has it."""


class NoText(OrgaError):
    """The run has no text with this reference."""


class TimelinePage(Record):
    """Records of successive iterations, oldest first."""

    items: tuple[IterationRecord, ...]
    """May be fewer than the limit, to avoid reading an older segment."""
    total: int
    """The number of the latest iteration."""
    first: int
    """The number of the first record that the server still has."""
    cursor: str
    """The last position in the history that the page shows."""


class FoundText(Record):
    """A place in a run that has the text."""

    iteration: int
    where: str
    """`reply`, `thinking`, `7.0 arguments`, `7.0 result`, `7.0 failure`, or the name of an event."""
    excerpt: str


class FoundTexts(Record):
    """Texts that a search has found, from the newest iteration to the oldest."""

    items: tuple[FoundText, ...]
    next: str | None = None
    """Pass it to `search` to continue in older iterations. None if there are no more."""


class _Head(NamedTuple):
    run_id: str
    previous: str
    """The run id of the segment before, or ""."""
    base: int
    """The last iteration of the segments before."""


@dataclass(frozen=True)
class _Chain:
    """The segments of a run that the server still has, oldest first."""

    workflow_id: str
    heads: tuple[_Head, ...]
    length: int
    """The number of events in the last segment."""

    @property
    def last(self) -> _Head:
        return self.heads[-1]

    def holding(self, lowest: int, highest: int) -> list[_Head]:
        """Return the segments that have at least a part of these iterations. Two segments can share an iteration."""
        ends = [*(head.base for head in self.heads[1:]), highest]
        return [head for head, end in zip(self.heads, ends, strict=True) if head.base <= highest and end >= lowest]


_Segment = ClosedSegment | TimelineFold


class _LiveSegment(NamedTuple):
    length: int
    """The number of events that the fold has read."""
    fold: TimelineFold


class Timelines:
    """The timelines of all runs of one client. Get it from `timelines_of`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cache = SegmentCache(client)
        self._heads: dict[str, _Head] = {}
        self._live: OrderedDict[str, _LiveSegment] = OrderedDict()
        """Live segments that nobody follows, by run id."""
        self._reading: dict[str, asyncio.Task[_Segment]] = {}

    async def page(
        self,
        workflow_id: str,
        *,
        around: int | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> TimelinePage:
        """Return the records of successive iterations. Without a position, return the newest ones.

        Args:
            workflow_id: The run's id.
            around: Return the iterations around this one.
            before: Return the last iterations before this one.
            after: Return the first iterations after this one.
            limit: The most records, from 1 to 100.

        Raises:
            RunNotFound: No run has this id.
            NotAnAgent: The id belongs to a workflow of another type.
            InvalidInput: More than one position is given, or a number is out of range.
        """
        positions = [position for position in (around, before, after) if position is not None]
        if len(positions) > 1:
            raise InvalidInput("around: only one of around, before and after can be given")
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidInput(f"limit: must be from 1 to {MAX_PAGE}, not {limit}")
        chain = await self._chain(workflow_id)
        total = await self._total(chain, reads_last_segment=not positions)
        first = chain.heads[0].base
        if around is not None:
            highest = min(max(around - limit // 2, first) + limit - 1, total)
            lowest = max(highest - limit + 1, first)
        elif after is not None:
            lowest = max(after + 1, first)
            highest = min(lowest + limit - 1, total)
        else:
            highest = total if before is None else min(before - 1, total)
            lowest = self._first_on_page(chain, max(highest - limit + 1, first), highest)
        items = await self._records(chain, lowest, highest) if lowest <= highest else []
        cursor = f"{chain.last.run_id}:{chain.length}"
        return TimelinePage(items=tuple(items), total=total, first=first, cursor=cursor)

    async def records(self, workflow_id: str) -> AsyncGenerator[IterationRecord]:
        """Yield all records of a run, oldest first. It raises the errors of `page`."""
        chain = await self._chain(workflow_id)
        total = await self._total(chain, reads_last_segment=True)
        for lowest in range(chain.heads[0].base, total + 1, MAX_PAGE):
            for record in await self._records(chain, lowest, min(lowest + MAX_PAGE - 1, total)):
                yield record

    async def record(self, workflow_id: str, iteration: int) -> IterationRecord:
        """Return one iteration, with up to 64 kB of each text. Raise NoRecord if there is none."""
        chain = await self._chain(workflow_id)
        record = await self._record(chain, iteration)
        clipped = [text for text in texts_of(record) if text.reference]
        texts = await self._texts(workflow_id, [text.reference or "" for text in clipped])
        return record.with_texts({text.reference or "": _longer_text(text, texts) for text in clipped})

    async def text(self, workflow_id: str, reference: str) -> str:
        """Return a whole text. Raise NoText if the run has none with this reference."""
        chain = await self._chain(workflow_id)
        run_id = reference.partition(".")[0]
        if run_id in {head.run_id for head in chain.heads}:
            texts = await self._texts(workflow_id, [reference])
            if reference in texts:
                return texts[reference]
        raise NoText(f"texts: run {workflow_id!r} has no text {reference[:100]!r}. Take one from its timeline")

    async def search(
        self, workflow_id: str, text: str = "", *, limits: SearchLimits | None = None, next: str | None = None
    ) -> FoundTexts:
        """Find a text in all replies, thinking, arguments, results and events. Upper and lower case are the same.

        Args:
            workflow_id: The run's id.
            text: The text to find. Without a text, all calls and events that meet the limits are found.
            limits: The calls and events to search. None searches everything.
            next: `next` of the previous result, to continue the search.

        Raises:
            InvalidInput: There is nothing to find, or `next` is not from a search in this run.
        """
        limits = limits or SearchLimits()
        if not text.strip() and not (limits.is_of_calls or limits.events):
            raise InvalidInput("text: must not be empty if there is no tool, event or outcome")
        chain = await self._chain(workflow_id)
        heads, below = list(chain.heads), None
        if next is not None:
            position = _parse_position(chain, next)
            heads, below = list(position.heads), position.below
        began, found = monotonic(), list[FoundText]()
        while heads:
            head = heads.pop()
            # the records of a segment have only the beginnings of long texts, so a text is searched in a whole fold
            segment = await self._fold(workflow_id, head, is_whole=True) if text else await self._segment(chain, head)
            for number in reversed(segment.numbers()):
                if below is not None and number >= below:
                    continue
                if (record := segment.record(number)) is not None:
                    found += _found_in(record, text, limits)
                if len(found) >= MAX_FOUND:
                    return FoundTexts(items=tuple(found), next=f"{head.run_id}.{number}")
            below = None
            if heads and monotonic() - began > SEARCH_S:
                return FoundTexts(items=tuple(found), next=f"{heads[-1].run_id}.")
        return FoundTexts(items=tuple(found))

    def live_record(self, workflow_id: str, entry: JournalEntry) -> IterationRecord | None:
        """Return the record that shows an entry, as it is now, if the run is followed in this event loop.

        Entries of delegated runs and of earlier segments have none.
        """
        if entry.run:
            return None
        folds = followed_timelines(self._client, workflow_id)
        numbers = [number for fold in folds if (number := fold.number_of(entry)) is not None]
        if not numbers:
            return None
        number = numbers[0]
        if number <= folds[0].base and not folds[0].is_first:
            return None  # an earlier segment that was not followed has a part of the iteration
        records = [record for fold in folds if (record := fold.record(number)) is not None]
        return reduce(lambda earlier, later: later.joined_with(earlier), records) if records else None

    async def _chain(self, workflow_id: str) -> _Chain:
        last = await latest_segment(self._client, workflow_id, RUN_WORKFLOWS)
        heads = await self._read_heads(workflow_id, last.run_id)
        chain = _Chain(workflow_id, tuple(heads), last.length)
        first = heads[0]
        claims_a_past = not first.previous and first.base > 0
        if not claims_a_past:
            return chain
        # the input of a fork can claim any iteration: read the real one
        first = first._replace(base=(await self._segment(chain, first)).base)
        if first.base:  # 0 is not kept: a live fork may not have read its past yet
            self._heads[first.run_id] = first
        return replace(chain, heads=(first, *heads[1:]))

    async def _read_heads(self, workflow_id: str, last: str) -> list[_Head]:
        """Return the heads of all segments that the server still has, oldest first."""
        heads: list[_Head] = []
        run_id = last
        while run_id:
            head = self._heads.get(run_id) or await self._read_head(workflow_id, run_id, is_last=not heads)
            if head is None:
                break
            heads.insert(0, head)
            run_id = head.previous
        while len(heads) > 1 and await self._read_head(workflow_id, heads[0].run_id, is_last=False) is None:
            del heads[0]  # the server has deleted it since it was read
        return heads

    async def _read_head(self, workflow_id: str, run_id: str, *, is_last: bool) -> _Head | None:
        """Return the beginning of a segment, or None if the server has deleted it."""
        try:
            started = await read_start(self._client, workflow_id, run_id)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND and not is_last:
                return None
            raise history_error(workflow_id, error) from error
        arguments = await start_arguments(run_converters(self._client, workflow_id).own_converter, started)
        if len(self._heads) >= KEPT_HEADS:
            self._heads.clear()
        head = _Head(run_id, previous_segment(started), iterations_before(arguments))
        self._heads[run_id] = head
        return head

    async def _total(self, chain: _Chain, *, reads_last_segment: bool) -> int:
        """Return the number of the latest iteration. The last segment is read only if the caller reads it anyway."""
        segment = self._segment_in_memory(chain, chain.last)
        if segment is None and not reads_last_segment:
            last = await _last_iteration(self._client, chain.workflow_id, chain.last)
            if last is not None:
                return last
        return (segment or await self._segment(chain, chain.last)).last

    def _first_on_page(self, chain: _Chain, lowest: int, highest: int) -> int:
        """Return the first number of a page. It is above `lowest` if that avoids a read and leaves `WINDOW` records."""
        heads = chain.holding(lowest, highest)
        for older, newer in zip(reversed(heads[:-1]), reversed(heads[1:]), strict=True):
            if highest - newer.base >= WINDOW and self._segment_in_memory(chain, older) is None:
                return max(lowest, newer.base + 1)
        return lowest

    async def _records(self, chain: _Chain, lowest: int, highest: int) -> list[IterationRecord]:
        found: dict[int, IterationRecord] = {}
        for head in chain.holding(lowest, highest):
            segment = await self._segment(chain, head)
            for number in segment.numbers():
                if lowest <= number <= highest and (record := segment.record(number)) is not None:
                    found[number] = record.joined_with(found[number]) if number in found else record
        return [found[number] for number in sorted(found)]

    async def _record(self, chain: _Chain, iteration: int) -> IterationRecord:
        found = await self._records(chain, iteration, iteration)
        if not found:
            first, total = chain.heads[0].base, await self._total(chain, reads_last_segment=False)
            problem = f"iterations: run {chain.workflow_id!r} has no iteration {iteration}"
            raise NoRecord(f"{problem}. There are {first} to {total}")
        return found[0]

    def _key(self, chain: _Chain, head: _Head) -> SegmentKey:
        return SegmentKey(self._client.namespace, chain.workflow_id, head.run_id)

    def _segment_in_memory(self, chain: _Chain, head: _Head) -> _Segment | None:
        if closed := self._cache.in_memory(self._key(chain, head)):
            return closed
        for followed in current_timelines(self._client, chain.workflow_id):
            if followed.run_id == head.run_id:
                return followed
        if head != chain.last:
            return None
        kept = self._live.get(head.run_id)
        return kept.fold if kept and kept.length == chain.length else None

    async def _segment(self, chain: _Chain, head: _Head) -> _Segment:
        if found := self._segment_in_memory(chain, head) or self._cache.read(self._key(chain, head)):
            return found
        task = self._reading.get(head.run_id)
        if task is None:
            task = self._reading[head.run_id] = asyncio.create_task(self._read_segment(chain, head))
            task.add_done_callback(lambda done: self._forget_reading(head.run_id, done))
        return await asyncio.shield(task)  # other callers may wait for the same task

    def _forget_reading(self, run_id: str, done: asyncio.Task[_Segment]) -> None:
        self._reading.pop(run_id, None)
        if not done.cancelled():
            done.exception()  # asyncio logs an exception that nobody has retrieved

    async def _read_segment(self, chain: _Chain, head: _Head) -> _Segment:
        fold = await self._fold(chain.workflow_id, head)
        if fold.is_closed:
            segment = ClosedSegment.of(fold.base, fold.records())
            await self._cache.add(self._key(chain, head), segment)
            self._live.pop(head.run_id, None)
            return segment
        self._live[head.run_id] = _LiveSegment(chain.length, fold)
        while len(self._live) > KEPT_LIVE:
            self._live.popitem(last=False)
        return fold

    async def _fold(self, workflow_id: str, head: _Head, *, is_whole: bool = False) -> TimelineFold:
        fold, journal = TimelineFold(head.run_id, is_whole=is_whole), JournalFold()
        is_numbered = not head.previous
        try:
            async for happening in happenings(self._client, workflow_id, head.run_id):
                fold.feed(happening, journal.feed(happening), is_numbered=is_numbered)
                if happening.run_id:  # the journal has the entries of a delegate here, and they were not read
                    is_numbered = False
        except (ValidationError, DigestMismatch) as error:
            problem = f"the history of {workflow_id!r} cannot be read: {error}"
            raise OrgaError(f"{problem}; `orga verify` shows where") from error
        return fold

    async def _texts(self, workflow_id: str, references: Collection[str]) -> dict[str, str]:
        """Return the texts that exist, by reference. The caller has checked that the references are to this run."""
        matches = [match for reference in references if (match := _REFERENCE.fullmatch(reference))]
        found: dict[str, str] = {}
        for run_id in {match["run"] for match in matches}:
            of_run = [match for match in matches if match["run"] == run_id]
            event_ids = {int(match["event"]) for match in of_run}
            read = await selected_happenings(self._client, workflow_id, run_id, event_ids)
            for match in of_run:
                with suppress(KeyError, ValueError):  # there is no such event, or it has no such text
                    found[match[0]] = event_texts(read[int(match["event"])])[match["part"]]
        return found


_REFERENCE = re.compile(r"(?P<run>[0-9A-Za-z-]{1,64})\.(?P<event>\d{1,9})\.(?P<part>[a-z]{1,20}(?:-[0-9a-z.]{1,40})?)")

_BY_CLIENT: WeakKeyDictionary[Client, Timelines] = WeakKeyDictionary()


def timelines_of(client: Client) -> Timelines:
    """Return the timelines of a client's runs. All callers share their cache."""
    return _BY_CLIENT.setdefault(client, Timelines(client))


async def _last_iteration(client: Client, workflow_id: str, head: _Head) -> int | None:
    """Return the latest iteration of a segment. None if the server cannot read a history backwards."""
    token = b""
    while True:
        try:
            page = await page_from_end(client, workflow_id, head.run_id, size=100, token=token)
        except RPCError as error:
            if error.status == RPCStatusCode.UNIMPLEMENTED:  # Temporal's test server
                return None
            raise history_error(workflow_id, error) from error
        for event in page.history.events:
            if number := model_call_iteration(event):
                return number
        token = page.next_page_token
        if not token:
            return head.base


def _longer_text(text: TimelineText, texts: dict[str, str]) -> TimelineText:
    """Return up to 64 kB of the text if `texts` has the whole. Otherwise return the text unchanged."""
    whole = texts.get(text.reference or "")
    if whole is None:
        return text
    data = whole.encode("utf-8", "replace")
    if len(data) <= MAX_TEXT_BYTES:
        return TimelineText(head=whole, size=text.size)
    head = data[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
    return TimelineText(head=head, size=text.size, reference=text.reference)


class _SearchPosition(NamedTuple):
    heads: Sequence[_Head]
    """The segments that are not searched yet, oldest first."""
    below: int | None
    """The last of these segments is searched only below this iteration. None if it is searched from its end."""


def _parse_position(chain: _Chain, next: str) -> _SearchPosition:
    run_id, _, below = next.partition(".")
    run_ids = [head.run_id for head in chain.heads]
    is_number = below.isascii() and below.isdigit() and len(below) < 10
    if run_id not in run_ids or (below and not is_number):
        raise InvalidInput(f"next: {next[:100]!r} is not from a search in this run. Leave it out to begin again")
    return _SearchPosition(chain.heads[: run_ids.index(run_id) + 1], int(below) if below else None)


def _found_in(record: IterationRecord, text: str, limits: SearchLimits) -> Sequence[FoundText]:
    """Return each place with the text. Without a text, return the first place of each part."""
    pattern = re.compile(re.escape(text), re.IGNORECASE)
    found: list[FoundText] = []
    for texts in limits.parts(record):
        for where, whole in texts if text else texts[:1]:
            if match := pattern.search(whole):
                start, end = max(match.start() - EXCERPT_CHARS, 0), match.end() + EXCERPT_CHARS
                excerpt = f"{'…' if start else ''}{whole[start:end]}{'…' if end < len(whole) else ''}"
                found.append(FoundText(iteration=record.number, where=where, excerpt=excerpt))
    return found
