"""The feeds of the console: one for each topic, for all its viewers.

| topic | source | position of a viewer |
|---|---|---|
| `run:ID` | the watcher of the run's journal | the cursor of the last entry |
| `runs` | visibility, every second | a revision |
| `inbox` | visibility and the waiting runs, every second | a revision |
| none | the health of the Temporal server | none |

A feed keeps encoded events. A viewer keeps only its mark in each feed, and reads from there at its own pace. So a slow
viewer costs no memory and delays nobody. Only journal entries are kept one by one. For all other topics, a viewer gets
the newest value. `run_feed.py` has the feed of a run.
"""

import asyncio
import re
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic_core import to_json
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.console.doors import Visitor
from orga.client.console.rows import Row
from orga.client.console.waits import Wait
from orga.client.errors import OrgaError

POLL_S = 1.0
"""Seconds between two reads of visibility."""
HEALTH_S = 1.0
"""Seconds between two checks of the server."""

HEALTH_TIMEOUT = timedelta(seconds=5)
"""The time that the server has to answer."""
SERVER = ""
"""The topic of the server's health. Every stream has it, so no viewer names it."""
MAX_GONE = 1_000
"""Ids of rows that are gone, kept for viewers that come back."""

Sleep = Callable[[float], Awaitable[None]]


class Frame(NamedTuple):
    """One event for a viewer, and the viewer's position in the topic after it."""

    event: str
    data: bytes
    position: str = ""


def resync(topic: str, position: str = "") -> Frame:
    """Return the event after which a viewer reads the snapshot again."""
    return Frame("resync", encoded({"topics": [topic]}), position)


def encoded(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null", fallback=str)


@dataclass
class Mark:
    """A viewer's position in one feed."""

    visitor: Visitor
    next: int = 0
    """The number of the latest change that the viewer has. In the feed of a run: of the next entry."""
    is_returning: bool = False
    """True until a viewer that came with a position has got what it missed."""
    is_over: bool = False
    """True if the feed has nothing more for this viewer, unless the viewer is admitted again."""
    is_missing: bool = False
    """True if there is no such run."""


M = TypeVar("M", bound=Mark)


class Feed(ABC, Generic[M]):
    """A topic as all its viewers see it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.viewers: set[asyncio.Event] = set()
        """One event for each viewer, set when there is news."""

    @abstractmethod
    def mark(self, visitor: Visitor, position: str) -> M:
        """Return the mark of a new viewer. `position` is "" if the viewer has none."""

    @abstractmethod
    def frames(self, mark: M) -> Iterator[Frame]:
        """Yield the next events for a viewer, at most one batch, and move its mark."""

    @abstractmethod
    async def follow(self, sleep: Sleep) -> None:
        """Read the source until cancelled."""

    def notify(self) -> None:
        for viewer in self.viewers:
            viewer.set()


class Value:
    """An encoded value, with the number of its changes."""

    def __init__(self) -> None:
        self.data: bytes = b""
        self.revision = 0

    def set(self, value: Any) -> bool:
        """Take the value, and return whether it differs from the last one."""
        data = encoded(value)
        if data == self.data:
            return False
        self.data, self.revision = data, self.revision + 1
        return True


class ServerFeed(Feed[Mark]):
    """Reports whether the Temporal server answers. Every stream has it."""

    def __init__(self, client: Client) -> None:
        super().__init__(SERVER)
        self._client = client
        self._event = "online"
        self._value = Value()

    def mark(self, visitor: Visitor, position: str) -> Mark:
        return Mark(visitor)

    def frames(self, mark: Mark) -> Iterator[Frame]:
        if mark.next != self._value.revision:
            knows_server = mark.next > 0  # otherwise the viewer expects that the server answers
            mark.next = self._value.revision
            if knows_server or self._event == "offline":
                yield Frame(self._event, self._value.data)

    async def follow(self, sleep: Sleep) -> None:
        is_slow = False
        while True:
            try:
                await self._client.service_client.check_health(timeout=HEALTH_TIMEOUT)
            except RPCError as error:  # a server that is only slow is not away yet
                if is_slow or error.status == RPCStatusCode.UNAVAILABLE:
                    self.show(is_there=False)
                is_slow = True
            else:
                self.show(is_there=True)
                is_slow = False
            await sleep(HEALTH_S)

    def show(self, *, is_there: bool) -> None:
        """Show viewers whether the server answers, if that has changed."""
        event = "online" if is_there else "offline"
        if event != self._event or not self._value.revision:
            self._event = event
            self._value.set({"since": datetime.now(UTC)})
            self.notify()


class PolledFeed(Feed[Mark]):
    """A list that is read again and again while somebody watches."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._epoch = secrets.token_hex(4)
        """Part of each position. A position of another epoch, such as one from before a restart, is not valid here."""
        self.changes = 0
        """The number of the latest change, or 0 until the list is read."""

    @property
    def position(self) -> str:
        return f"{self._epoch}.{self.changes}"

    def mark(self, visitor: Visitor, position: str) -> Mark:
        change = self._change_at(position)
        if change is None:
            return Mark(visitor, is_returning=bool(position))
        return Mark(visitor, change)

    def _change_at(self, position: str) -> int | None:
        """Return the change that a position names, or None if this feed did not give the position."""
        own = re.fullmatch(rf"{self._epoch}\.([0-9]{{1,15}})", position)
        return int(own[1]) if own and int(own[1]) <= self.changes else None

    async def follow(self, sleep: Sleep) -> None:
        while True:
            try:
                has_changed = await self.poll()
            except (RPCError, OrgaError):  # the server is away, or lists no runs
                has_changed = False
            if has_changed:
                self.notify()
            await sleep(POLL_S)

    @abstractmethod
    async def poll(self) -> bool:
        """Read the list, and return whether it has changed."""


class _ListedRow(NamedTuple):
    started: datetime
    data: bytes
    change: int
    """The number of the row's latest change."""


class _GoneRow(NamedTuple):
    change: int
    id: str


class ListedRuns(NamedTuple):
    rows: Sequence[Row]
    counts: dict[str, int]
    has_older: bool
    """True if there are older runs, which have no row."""


class RunsFeed(PolledFeed):
    """The newest runs, for viewers who may see the runs of the same tenants."""

    def __init__(self, topic: str, read: Callable[[], Awaitable[ListedRuns]]) -> None:
        super().__init__(topic)
        self._read = read
        self._rows: dict[str, _ListedRow] = {}
        self._gone: deque[_GoneRow] = deque(maxlen=MAX_GONE)
        self._counts = Value()
        self._frames: dict[int, bytes] = {}
        """By the latest change that a viewer has: all later changes, encoded once for all viewers."""

    async def poll(self) -> bool:
        rows, counts, has_older = await self._read()
        number, known = self.changes + 1, self._rows
        self._rows = {}
        for row in rows:
            before, data = known.get(row.id), encoded(row)
            change = before.change if before and before.data == data else number
            self._rows[row.id] = _ListedRow(row.started, data, change)
        gone = [id for id in known if id not in self._rows]
        if has_older and self._rows:  # a row that is now older than all others is only left out
            oldest = min(row.started for row in self._rows.values())
            gone = [id for id in gone if known[id].started >= oldest]
        has_new_counts = self._counts.set(counts)
        has_new_rows = any(row.change == number for row in self._rows.values())
        is_first = not self.changes
        if not (gone or has_new_rows or has_new_counts or is_first):
            return False
        self.changes = number
        self._gone.extend(_GoneRow(number, id) for id in gone)
        self._frames.clear()
        return True

    def frames(self, mark: Mark) -> Iterator[Frame]:
        if not self.changes:
            return
        oldest_known = self._gone[0].change if len(self._gone) == MAX_GONE else 0
        lacks_forgotten_rows = 0 < mark.next < oldest_known
        if mark.is_returning or lacks_forgotten_rows:
            mark.is_returning, mark.next = False, 0
            yield resync(self.topic, self.position)
        if mark.next != self.changes:
            if mark.next not in self._frames:
                self._frames[mark.next] = self._changes_after(mark.next)
            data, mark.next = self._frames[mark.next], self.changes
            yield Frame("list", data, self.position)

    def _changes_after(self, number: int) -> bytes:
        rows = b",".join(row.data for row in self._rows.values() if row.change > number)
        is_new_viewer = number == 0  # it has no rows that could be gone
        later = [] if is_new_viewer else [row for row in self._gone if row.change > number]
        gone = [row.id for row in later if row.id not in self._rows]
        return b'{"rows":[%b],"gone":%b,"counts":%b}' % (rows, encoded(gone), self._counts.data)


class InboxFeed(PolledFeed):
    """Everything that waits for a person, for viewers who may see the runs of the same tenants."""

    def __init__(self, topic: str, read: Callable[[], Awaitable[Sequence[Wait]]]) -> None:
        super().__init__(topic)
        self._read = read
        self._value = Value()

    async def poll(self) -> bool:
        has_changed = self._value.set({"items": await self._read()})
        self.changes = self._value.revision
        return has_changed

    def frames(self, mark: Mark) -> Iterator[Frame]:
        if self.changes and mark.next != self.changes:
            mark.next = self.changes
            yield Frame("inbox", self._value.data, self.position)
