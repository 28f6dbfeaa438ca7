"""The stream of events, `GET /api/v1/events`: any number of topics over one connection.

A hub reads one feed for each topic, for all streams that have the topic. The id of an event is a query string of
`topic=position` for all topics of its stream. So a viewer that comes back gets the events that it missed. Another
console can send them, too, because the entries of a journal come from the history.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from pydantic import Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from temporalio.service import RPCError

from orga.client.console.doors import Visitor
from orga.client.console.problems import Problem, invalid
from orga.client.console.routes import Call, Console, Routes
from orga.client.console.stream.feeds import (
    SERVER,
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
from orga.workflows.types.record import CheckedInput

logger = logging.getLogger(__name__)

LINGER_S = 30.0
"""Seconds that a feed without viewers goes on, for a viewer that comes back."""
STREAMS_PER_VISITOR = 8
"""Open streams of one visitor, by name."""
STREAMS = 500
"""Open streams of all visitors."""
RUN = "run:"
"""The topic of a run begins with this."""
LISTS = frozenset({"runs", "inbox"})
"""The topics that depend on the viewer's tenants. Feeds of runs are the same for all."""


@dataclass
class _RunningFeed:
    feed: Feed[Any]
    task: asyncio.Task[None]
    linger: asyncio.Task[None] | None = None
    """The task that ends the feed later, while it has no viewers."""


class Hub:
    """The feeds of a console, and its open streams."""

    def __init__(self, sources: Sources, sleep: Sleep = asyncio.sleep) -> None:
        self.sources, self._sleep = sources, sleep
        self._feeds: dict[tuple[str, Tenants], _RunningFeed] = {}
        self._streams: Counter[str] = Counter()

    @property
    def feeds(self) -> Collection[Feed[Any]]:
        """The feeds that are read at the moment."""
        return [running.feed for running in self._feeds.values()]

    def begin_stream(self, name: str) -> None:
        """Count a stream of the visitor of this name until `end_stream`. Raise Problem if there are too many."""
        if self._streams[name] >= STREAMS_PER_VISITOR:
            why = f"{name} has {STREAMS_PER_VISITOR} streams open. Close a page that shows runs live"
            raise Problem(429, why, retry_after_s=5)
        if self._streams.total() >= STREAMS:
            raise Problem(429, f"{STREAMS} streams are open. Try again when some have been closed", retry_after_s=5)
        self._streams[name] += 1

    def end_stream(self, name: str) -> None:
        self._streams[name] -= 1
        self._streams += Counter()  # drops names without streams

    def join(self, topic: str, tenants: Tenants, viewer: asyncio.Event) -> Feed[Any]:
        """Add a viewer to the feed of a topic, and return the feed."""
        key = (topic, tenants if topic in LISTS else None)
        running = self._feeds.get(key)
        if running is None or running.task.done():  # the feed of a missing run ends, but the run may exist now
            feed = self._new_feed(*key)
            running = self._feeds[key] = _RunningFeed(feed, asyncio.create_task(self._follow(feed)))
        if running.linger is not None:
            running.linger.cancel()
            running.linger = None
        running.feed.viewers.add(viewer)
        return running.feed

    def leave(self, feed: Feed[Any], viewer: asyncio.Event) -> None:
        """Remove a viewer. A feed ends `LINGER_S` after its last viewer has left."""
        feed.viewers.discard(viewer)
        if feed.viewers:
            return
        for key, running in self._feeds.items():
            if running.feed is feed and running.linger is None:
                running.linger = asyncio.create_task(self._end_later(key, running))

    async def _follow(self, feed: Feed[Any]) -> None:
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

    def _new_feed(self, topic: str, tenants: Tenants) -> Feed[Any]:
        sources = self.sources
        if topic == SERVER:
            return ServerFeed(sources.client)
        if topic == "runs":
            return RunsFeed(topic, sources.rows(tenants))
        if topic == "inbox":
            return InboxFeed(topic, sources.waits(tenants))
        return RunFeed(topic, sources, asyncio.get_running_loop().time)


class _Subscription(NamedTuple):
    feed: Feed[Any]
    mark: Mark


class Stream:
    """The events for one viewer."""

    def __init__(self, hub: Hub, visitor: Visitor, topics: Sequence[str], positions: Mapping[str, str]) -> None:
        self._hub, self._visitor, self._topics = hub, visitor, topics
        self._positions = {topic: positions[topic] for topic in topics if positions.get(topic)}
        self._wake = asyncio.Event()
        self._subscriptions: dict[str, _Subscription] = {}
        self._refused: list[str] = []
        """Topics that the viewer may not see. `resync` makes the viewer read the snapshot, which is refused."""
        self._admissions: set[asyncio.Task[None]] = set()
        """Running checks whether the viewer may see a topic."""

    @property
    def id(self) -> str:
        """The id of the latest event."""
        return urlencode(self._positions)

    async def frames(self) -> AsyncGenerator[Frame]:
        """Yield events until cancelled. `id` is then the id of the last one."""
        try:
            for topic in (SERVER, *self._topics):
                self._request_topic(topic)
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
                if not mark.is_missing:  # another execution of the run has begun, perhaps in another tenant
                    self._request_topic(topic)

    def _request_topic(self, topic: str) -> None:
        """Subscribe to a topic. If the viewer may not see all runs, check the run first."""
        if self._visitor.tenants is None or not topic.startswith(RUN):
            self._subscribe(topic)
        else:
            task = asyncio.create_task(self._subscribe_if_visible(topic))
            self._admissions.add(task)
            task.add_done_callback(self._admissions.discard)

    async def _subscribe_if_visible(self, topic: str) -> None:
        try:
            await self._wait_for_check(topic)
            self._subscribe(topic)
        except (RunNotFound, NotAnAgent):
            self._refused.append(topic)
        self._wake.set()

    async def _wait_for_check(self, topic: str) -> None:
        """Check whether the viewer may see a run, as soon as the server answers. Raise RunNotFound or NotAnAgent."""
        while True:
            try:
                return await self._hub.sources.check_visible(self._visitor, topic.removeprefix(RUN))
            except (RunNotFound, NotAnAgent):
                raise
            except (RPCError, OrgaError):  # the server is away
                await asyncio.sleep(AGAIN_S)

    def _subscribe(self, topic: str) -> None:
        feed = self._hub.join(topic, self._visitor.tenants, self._wake)
        self._subscriptions[topic] = _Subscription(feed, feed.mark(self._visitor, self._positions.get(topic, "")))


ROUTES = Routes()

MAX_TOPICS = 100  # of one stream
PING_S = 15  # seconds between two pings of a stream

STALLED_S = 120
"""Seconds after which the stream of a viewer that takes no bytes is closed. The viewer can come back."""
RETRY_MS = 1_000
"""Milliseconds after which a browser that lost the stream opens it again."""


class EventsQuery(CheckedInput):
    topics: str = Field(min_length=1, max_length=20_000)
    """`runs`, `inbox` and `run:ID`, separated by commas."""
    after: str = Field(default="", max_length=20_000)
    """The id of the last event, if the header `Last-Event-ID` cannot be sent, or `run:ID=CURSOR` of a snapshot."""


@ROUTES.get(
    "/events",
    media_type="text/event-stream",
    more_statuses=(429,),
    headers={"Last-Event-ID": "The id of the last event, so that nothing is missed."},
)
async def _open(call: Call[EventsQuery]) -> Response:
    """Stream what changes in runs, in the list of runs and in the inbox, as server-sent events."""
    topics = _topics(call.given.topics)
    if len(topics) > MAX_TOPICS:
        raise invalid([f"topics: there are {len(topics)}. At most {MAX_TOPICS} are possible"])
    last_id = call.request.headers.get("last-event-id") or call.given.after
    hub = hub_of(call.request.app, call.console)
    stream = Stream(hub, call.visitor, topics, dict(parse_qsl(last_id)))

    def is_admitted() -> bool:
        return call.console.doors.visitor(call.request) == call.visitor

    return _StreamResponse(hub, stream, call.visitor.name, is_admitted)


def _topics(text: str) -> list[str]:
    """Return the topics. An id may contain a comma, so a part that is no topic continues the id before it."""
    topics: list[str] = []
    for part in text.split(","):
        if part in LISTS or part.startswith(RUN):
            topics.append(part)
        elif topics and topics[-1].startswith(RUN):
            topics[-1] += f",{part}"
        else:
            raise invalid([f"topics: {part!r} is no topic. There are runs, inbox and run:ID"])
    if RUN in topics:
        raise invalid(["topics: run: has no id. Give run:ID"])
    return list(dict.fromkeys(topics))


def hub_of(app: Starlette, console: Console) -> Hub:
    if not hasattr(app.state, "hub"):
        app.state.hub = Hub(Sources(console))
    return app.state.hub


class _StreamResponse(EventSourceResponse):
    def __init__(self, hub: Hub, stream: Stream, name: str, is_admitted: Callable[[], bool]) -> None:
        """Count the stream for the visitor of this name. Raise Problem if there are too many."""
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            encoded_frames(stream, is_admitted),
            ping=PING_S,
            send_timeout=STALLED_S,
            ping_message_factory=lambda: ServerSentEvent("{}", event="ping", id=stream.id, sep="\n"),
        )
        hub.begin_stream(name)
        self._end = partial(hub.end_stream, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def encoded_frames(stream: Stream, is_admitted: Callable[[], bool]) -> AsyncGenerator[bytes]:
    """Yield the events of a stream. End before the next event if the viewer is no longer admitted."""
    yield b"retry: %d\n\n" % RETRY_MS
    async with aclosing(stream.frames()) as frames:
        async for frame in frames:
            if not is_admitted():
                return
            yield b"id: %b\nevent: %b\ndata: %b\n\n" % (stream.id.encode(), frame.event.encode(), frame.data)
