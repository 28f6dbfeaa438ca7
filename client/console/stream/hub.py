"""The feeds that a console reads, and the streams of its viewers, each with any number of topics.

The id of an event is a query string of `topic=position` for all topics of its stream. So a viewer that comes back gets
what it missed from whichever console it reaches: the entries of a journal come from the history.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from temporalio.service import RPCError

from orga.client.console.doors import Visitor
from orga.client.console.problems import Problem
from orga.client.console.stream.feeds import (
    Feed,
    Frame,
    InboxFeed,
    Mark,
    RunsFeed,
    ServerFeed,
    Sleep,
    resync,
)
from orga.client.console.stream.run_feed import AGAIN_S, RunFeed
from orga.client.console.stream.sources import Sources, Tenants
from orga.client.errors import NotAnAgent, OrgaError, RunNotFound

logger = logging.getLogger(__name__)

LINGER_S = 30.0
"""Seconds that a feed without viewers goes on, for a viewer that comes back."""

STREAMS_A_NAME, STREAMS = 8, 500
"""Open streams of one name, and of all."""

RUN = "run:"
"""The topic of a run begins with this."""


@dataclass
class _RunningFeed:
    feed: Feed
    task: asyncio.Task[None]
    linger: asyncio.Task[None] | None = None


class Hub:
    """The feeds of a console, and its open streams."""

    def __init__(self, sources: Sources, sleep: Sleep = asyncio.sleep) -> None:
        self.sources, self._sleep = sources, sleep
        self._feeds: dict[tuple[str, Tenants], _RunningFeed] = {}
        self._streams: Counter[str] = Counter()

    @property
    def feeds(self) -> Collection[Feed]:
        """The feeds that are read at the moment."""
        return [running.feed for running in self._feeds.values()]

    def begin_stream(self, name: str) -> None:
        """Count a stream of this name. `end_stream` follows.

        Raises:
            Problem: There are too many.
        """
        if self._streams[name] >= STREAMS_A_NAME:
            why = f"{name} has {STREAMS_A_NAME} streams open. Close a page that shows runs live"
            raise Problem(429, why, retry_after_s=5)
        if self._streams.total() >= STREAMS:
            raise Problem(429, f"{STREAMS} streams are open. Try again when some have been closed", retry_after_s=5)
        self._streams[name] += 1

    def end_stream(self, name: str) -> None:
        self._streams[name] -= 1
        self._streams += Counter()  # drops names without streams

    def join(self, topic: str, tenants: Tenants, viewer: asyncio.Event) -> Feed:
        """Return the feed of a topic, with one viewer more. The feeds of runs are the same for all tenants."""
        key = (topic, tenants if topic in {"runs", "inbox"} else None)
        running = self._feeds.get(key)
        if running is None or running.task.done():  # a run that did not exist may exist now
            feed = self._new_feed(*key)
            running = self._feeds[key] = _RunningFeed(feed, asyncio.create_task(self._follow(feed)))
        if running.linger is not None:
            running.linger.cancel()
            running.linger = None
        running.feed.viewers.add(viewer)
        return running.feed

    def leave(self, feed: Feed, viewer: asyncio.Event) -> None:
        """Remove a viewer. A feed ends some time after the last one has left."""
        feed.viewers.discard(viewer)
        for key, running in self._feeds.items():
            if running.feed is feed and not feed.viewers and running.linger is None:
                running.linger = asyncio.create_task(self._end_later(key, running))

    async def _follow(self, feed: Feed) -> None:
        while True:
            try:
                await feed.follow(self._sleep)
            except Exception:
                logger.exception("the feed of %r failed", feed.topic)
                await self._sleep(AGAIN_S)
            else:
                return

    async def close(self) -> None:
        tasks = [task for each in self._feeds.values() for task in (each.task, each.linger) if task is not None]
        self._feeds.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end_later(self, key: tuple[str, Tenants], running: _RunningFeed) -> None:
        await self._sleep(LINGER_S)
        if self._feeds.get(key) is running:
            del self._feeds[key]
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)

    def _new_feed(self, topic: str, tenants: Tenants) -> Feed:
        sources = self.sources
        if not topic:
            return ServerFeed(sources.client)
        if topic == "runs":
            return RunsFeed(topic, sources.rows(tenants))
        if topic == "inbox":
            return InboxFeed(topic, sources.waits(tenants))
        return RunFeed(topic, sources, asyncio.get_running_loop().time)


class _Subscription(NamedTuple):
    feed: Feed
    mark: Mark


class Stream:
    """The events for one viewer."""

    def __init__(self, hub: Hub, visitor: Visitor, topics: Sequence[str], positions: Mapping[str, str]) -> None:
        self._hub, self._visitor, self._topics = hub, visitor, topics
        self._positions = {topic: positions[topic] for topic in topics if positions.get(topic)}
        self._wake = asyncio.Event()
        self._subscriptions: dict[str, _Subscription] = {}
        self._refused: list[str] = []
        """Topics that do not exist for the viewer. It learns so when it reads the snapshot."""
        self._admissions: set[asyncio.Task[None]] = set()

    @property
    def id(self) -> str:
        """The id of the latest event."""
        return urlencode(self._positions)

    async def frames(self) -> AsyncGenerator[Frame]:
        """Yield events until cancelled. `id` is that of the event yielded last."""
        try:
            for topic in ("", *self._topics):
                self._request(topic)
            while True:
                self._wake.clear()
                is_idle = True
                async for frame in self._next_frames():
                    is_idle = False
                    yield frame
                if is_idle:
                    await self._wake.wait()
        finally:
            for task in self._admissions:
                task.cancel()
            for subscription in self._subscriptions.values():
                self._hub.leave(subscription.feed, self._wake)

    async def _next_frames(self) -> AsyncGenerator[Frame]:
        while self._refused:
            yield resync(self._refused.pop())
        for topic, (feed, mark) in list(self._subscriptions.items()):
            for frame in list(feed.frames(mark)):
                if frame.position:
                    self._positions[topic] = frame.position
                yield frame
            if mark.is_over:
                del self._subscriptions[topic]
                self._positions.pop(topic, None)
                self._hub.leave(feed, self._wake)
                if not mark.is_missing:
                    self._request(topic)

    def _request(self, topic: str) -> None:
        if self._visitor.tenants is None or not topic.startswith(RUN):
            self._subscribe(topic)
        else:
            task = asyncio.create_task(self._admit(topic))
            self._admissions.add(task)
            task.add_done_callback(self._admissions.discard)

    async def _admit(self, topic: str) -> None:
        while True:
            try:
                await self._hub.sources.check_visible(self._visitor, topic.removeprefix(RUN))
            except (RunNotFound, NotAnAgent):
                self._refused.append(topic)
            except (RPCError, OrgaError):  # the server is away
                await asyncio.sleep(AGAIN_S)
                continue
            else:
                self._subscribe(topic)
            self._wake.set()
            return

    def _subscribe(self, topic: str) -> None:
        feed = self._hub.join(topic, self._visitor.tenants, self._wake)
        self._subscriptions[topic] = _Subscription(feed, feed.mark(self._visitor, self._positions.get(topic, "")))
