"""The streams of the console: what each viewer gets, by a clock and sources of the test."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, cast
from urllib.parse import parse_qsl

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.console.doors import Visitor
from orga.client.console.event_stream import LINGER_S, STREAMS_PER_VISITOR, Hub, Stream, encoded_frames
from orga.client.console.problems import Problem
from orga.client.console.stream import run_feed
from orga.client.console.stream.feeds import Feed, InboxFeed, Mark, RunsFeed, ServerFeed
from orga.client.console.stream.run_feed import MAX_MISSED, MAX_MISSED_BYTES, RECENT_ACTIONS, UNKNOWN_CURSOR_S, RunFeed
from orga.client.console.stream.sources import Sources
from orga.client.errors import RunNotFound, ServerLost
from orga.client.journal.run_view import RunView
from orga.client.journal.timeline_records import IterationRecord
from orga.client.journal.watcher import LiveActivity
from orga.workflows.types.status import JournalEntry
from tests.replay.test_histories import HISTORIES, history_in
from tests.support.parts.served_histories import HistoryClient
from tests.support.values.core import T0

OWNER = Visitor("owner")


class NoServer:
    """A client whose server is away."""

    def __getattr__(self, name: str) -> Any:
        raise RPCError(f"{name}: the server is away", RPCStatusCode.UNAVAILABLE, b"")


CLIENT = cast("Client", NoServer())


@dataclass(frozen=True)
class Listed:
    """A row of the list."""

    id: str
    state: str = "acting"
    age: int = 0

    @property
    def started(self) -> Any:
        return T0 - timedelta(seconds=self.age)


class FilledSources(Sources):
    """Sources that the test fills."""

    def __init__(self) -> None:
        self.listed: tuple[Sequence[Listed], dict[str, int], bool] = ((), {}, False)
        self.waiting: Sequence[str] = ()
        self.looks = 0
        self.checks = 0
        self.visible: set[str] = set()
        self.is_away = False
        self.has_worker = False

    @property
    def client(self) -> Client:
        return CLIENT

    def rows(self, tenants: Any) -> Any:
        async def read() -> Any:
            self.looks += 1
            return self.listed

        return read

    def waits(self, tenants: Any) -> Any:
        async def read() -> Any:
            return self.waiting

        return read

    def note_question(self) -> None:
        """Take no note."""

    async def state(self, run_id: str, view: RunView) -> dict[str, Any]:
        return {"run": run_id, "phase": view.phase, "ended": None, "worker": {"present": self.has_worker}}

    async def is_current(self, run_id: str, state: dict[str, Any]) -> bool:
        return state["worker"]["present"] == self.has_worker

    def state_for(self, visitor: Visitor, state: dict[str, Any]) -> dict[str, Any]:
        return state

    def record(self, run_id: str, entry: JournalEntry) -> IterationRecord:
        return IterationRecord(number=entry.iteration)

    async def check_visible(self, visitor: Visitor, run_id: str) -> None:
        self.checks += 1
        if self.is_away:
            raise ServerLost("it is away")
        if run_id not in self.visible:
            raise RunNotFound(run_id)


def entry(number: int, event: str = "PolicyEvaluated", *, version: str = "", **data: Any) -> JournalEntry:
    """Return an entry of a journal with two entries in each iteration."""
    digest = sha256(f"{number}{version}".encode()).hexdigest()
    return JournalEntry(
        sequence=number, timestamp=T0, agent="a", iteration=number // 2, event=event, data=data, hash=digest
    )


class Clock:
    """The time of the feed of a run."""

    now = 0.0


def a_feed(count: int, *, clock: Clock | None = None, **data: Any) -> RunFeed:
    """Return the feed of a run with so many entries, read to its end."""
    clock = clock or Clock()
    feed = RunFeed("run:r", FilledSources(), lambda: clock.now)
    for number in range(count):
        feed.take(entry(number, **data))
    feed.publish()
    return feed


def shown(feed: Feed[Any], mark: Mark) -> list[tuple[str, Any]]:
    """Return the events that a viewer gets, until it has everything."""
    found: list[tuple[str, Any]] = []
    while frames := list(feed.frames(mark)):
        found += [(frame.event, json.loads(frame.data)) for frame in frames]
    return found


def brief(events: Sequence[tuple[str, Any]]) -> list[Any]:
    """Return the sequences of entries, with the record if there is one, and the names of other events."""
    return [
        name
        if name != "entry"
        else (data["entry"]["sequence"], data["record"]["number"])
        if data["record"]
        else data["entry"]["sequence"]
        for name, data in events
    ]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        pytest.param("", [], id="a new viewer begins with the next entry"),
        pytest.param(entry(5).cursor, [], id="a viewer that has everything gets nothing"),
        pytest.param(entry(2).cursor, [(3, 1), 4, (5, 2)], id="the last entry of an iteration has its record"),
        pytest.param("2", [(3, 1), 4, (5, 2)], id="a sequence is a position too"),
        pytest.param("-1", [0, (1, 0), 2, (3, 1), 4, (5, 2)], id="everything"),
        pytest.param(entry(2, version="of a past").cursor, ["resync"], id="an entry that a rewind has replaced"),
        pytest.param("x", ["resync"], id="what is no position"),
    ],
)
async def test_a_viewer_gets_what_it_misses(position: str, expected: list[Any]) -> None:
    feed = a_feed(6)
    mark = feed.mark(OWNER, position)
    assert brief(shown(feed, mark)) == expected
    feed.take(entry(6))
    feed.publish()
    assert brief(shown(feed, mark)) == [(6, 3)]


async def test_more_entries_than_the_limit_give_a_resync() -> None:
    feed = a_feed(MAX_MISSED + 10)
    assert len(shown(feed, feed.mark(OWNER, "9"))) == MAX_MISSED
    assert brief(shown(feed, feed.mark(OWNER, "8"))) == ["resync"]


async def test_a_viewer_that_stalls_loses_live_texts_first_and_then_gets_a_resync() -> None:
    feed = a_feed(1)
    mark, quick = feed.mark(OWNER, ""), feed.mark(OWNER, "")
    assert shown(feed, mark) == shown(feed, quick) == []
    for number in range(1, 11):
        feed.take_live([LiveActivity(run="r", activity_id="1", name="reason", text="so" * number)])
        feed.take(entry(number))
        feed.publish()
        assert brief(shown(feed, quick)) == [(number, number // 2), "live"]
    *entries, (name, live) = shown(feed, mark)
    assert (len(entries), name, live["activities"][0]["text"]) == (10, "live", "so" * 10)
    size = len(json.dumps(entries[0][1]["entry"]))
    for number in range(11, 11 + MAX_MISSED_BYTES // size + 1):
        feed.take(entry(number, reason="x" * 2_000))
    feed.publish()
    assert brief(shown(feed, mark)) == ["resync"]


async def test_a_viewer_that_comes_back_gets_all_that_the_limit_allows_however_large() -> None:
    feed = a_feed(900, reason="x" * 2_000)
    events = shown(feed, feed.mark(OWNER, "0"))
    assert [data["entry"]["sequence"] for _, data in events] == list(range(1, 900))


async def test_an_entry_that_the_watcher_has_not_read_yet_is_waited_for() -> None:
    clock = Clock()
    feed = a_feed(3, clock=clock)
    early, lost = feed.mark(OWNER, entry(4).cursor), feed.mark(OWNER, "99-abc")
    assert shown(feed, early) == shown(feed, lost) == []
    for number in range(3, 6):
        feed.take(entry(number))
    feed.publish()
    assert brief(shown(feed, early)) == [(5, 2)]
    clock.now = UNKNOWN_CURSOR_S
    assert brief(shown(feed, lost)) == ["resync"]


async def test_a_rewind_gives_every_viewer_a_resync_and_then_the_new_entries() -> None:
    feed = a_feed(4)
    mark = feed.mark(OWNER, "")
    shown(feed, mark)
    feed.forget()
    for number in range(3):
        feed.take(entry(number, version="again"))
    assert shown(feed, mark) == []
    feed.publish()
    assert brief(shown(feed, mark)) == ["resync"]
    feed.take(entry(3, version="again"))
    assert brief(shown(feed, mark)) == [(3, 1)]


class RewoundAtItsEnd(HistoryClient):
    """The run is rewound in the moment in which its end has been read."""

    def get_workflow_handle(self, workflow_id: str, *, run_id: str | None = None, **_: Any) -> Any:
        handle = super().get_workflow_handle(workflow_id, run_id=run_id)
        read = handle.fetch_history_events

        async def events(page_size: int = 0, **_: Any) -> AsyncGenerator[Any]:
            async for event in read(page_size):
                yield event
            if not page_size:
                self.segments.setdefault("segment-1", self.segments["segment-0"])

        handle.fetch_history_events = events
        return handle


async def test_a_rewind_at_the_moment_of_the_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    client = RewoundAtItsEnd(history_in(next(path for path in HISTORIES if path.stem == "answer")))
    monkeypatch.setattr(FilledSources, "client", client)
    feed, news = RunFeed(f"run:{client.workflow_id}", FilledSources(), lambda: 0.0), asyncio.Event()
    feed.viewers.add(news)
    mark, names = feed.mark(OWNER, ""), list[str]()
    following = asyncio.create_task(feed.follow(asyncio.sleep))
    async with asyncio.timeout(10):
        while not mark.is_over:
            await news.wait()
            news.clear()
            names += [frame.event for frame in feed.frames(mark)]
    following.cancel()
    assert names[-1] == "resync"


@pytest.mark.parametrize(
    ("event", "data", "expected"),
    [
        pytest.param("InterventionReceived", {}, {"state": "received", "phase": None, "detail": None}, id="received"),
        pytest.param(
            "InterventionReceived",
            {"refused": "it is too long"},
            {"state": "refused", "phase": None, "detail": "it is too long"},
            id="received and refused",
        ),
        pytest.param(
            "InterventionApplied",
            {"phase": "reasoning", "iteration": 7},
            {"state": "applied", "phase": "reasoning", "iteration": 7, "detail": None},
            id="applied",
        ),
        pytest.param(
            "InterventionRefused",
            {"reason": "the run had ended"},
            {"state": "refused", "phase": None, "detail": "the run had ended"},
            id="refused",
        ),
    ],
)
async def test_an_intervention_with_an_id_is_an_action_too(
    event: str, data: dict[str, Any], expected: dict[str, Any]
) -> None:
    feed = a_feed(0)
    feed.take(entry(0, event, id="i1", kind="steer", by="ann", **data))
    feed.take(entry(1, event, kind="steer", **data))
    feed.publish()
    events = shown(feed, feed.mark(OWNER, "-1"))
    assert [name for name, _ in events] == ["entry", "action", "entry"]
    common = {"run": "r", "id": "i1", "kind": "steer", "by": "ann", "iteration": 0}
    assert events[1][1] == common | expected


async def test_a_new_viewer_gets_the_latest_actions_for_it_may_have_sent_one() -> None:
    feed = a_feed(0)
    for number in range(RECENT_ACTIONS + 5):
        feed.take(entry(number, "InterventionReceived", id=f"i{number}", kind="steer"))
    feed.publish()
    events = shown(feed, feed.mark(OWNER, ""))
    assert [(name, data["id"]) for name, data in events] == [
        ("action", f"i{number}") for number in range(5, RECENT_ACTIONS + 5)
    ]


async def test_long_texts_of_an_entry_are_cut() -> None:
    feed = a_feed(1, texts=["x" * 5_000, {"deep": "y" * 5_000}])
    ((_, data),) = shown(feed, feed.mark(OWNER, "-1"))
    first, second = data["entry"]["data"]["texts"]
    assert max(len(first), len(second["deep"])) <= 2_001


async def test_a_worker_that_comes_is_shown_though_no_entry_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_feed, "HELP_LOOK_S", 0.01)
    sources, news = FilledSources(), asyncio.Event()
    feed = RunFeed("run:r", sources, lambda: 0.0)
    feed.viewers.add(news)
    feed.take(entry(0))
    feed.publish()
    mark, seen = feed.mark(OWNER, ""), list[bool]()
    following = asyncio.create_task(feed.follow(asyncio.sleep))
    async with asyncio.timeout(10):
        while len(seen) < 2:
            await news.wait()
            news.clear()
            seen += [data["worker"]["present"] for name, data in shown(feed, mark) if name == "state"]
            sources.has_worker = bool(seen)
    following.cancel()
    assert seen == [False, True]


async def test_the_list_sends_new_and_changed_rows_and_those_that_are_gone() -> None:
    sources = FilledSources()
    feed = RunsFeed("runs", sources.rows(None))
    a, b, old = Listed("a"), Listed("b", age=1), Listed("old", age=9)
    mark = feed.mark(OWNER, "")

    async def after(*rows: Listed, all: int, has_older: bool = False) -> list[Any]:
        sources.listed = rows, {"all": all}, has_older
        await feed.poll()
        return [
            (name, sorted(row["id"] for row in data["rows"]), data["gone"], data["counts"]["all"])
            for name, data in shown(feed, mark)
        ]

    assert await after(a, b, old, all=3) == [("list", ["a", "b", "old"], [], 3)]
    position = feed.position
    assert await after(a, b, old, all=3) == []
    assert await after(Listed("a", "completed"), b, old, all=3) == [("list", ["a"], [], 3)]
    assert await after(Listed("a", "completed"), b, all=9, has_older=True) == [("list", [], [], 9)]
    assert await after(b, all=1) == [("list", [], ["a"], 1)]
    assert shown(feed, feed.mark(OWNER, feed.position)) == []
    assert shown(feed, feed.mark(OWNER, position)) == [("list", {"rows": [], "gone": ["a"], "counts": {"all": 1}})]
    epoch = feed.position.partition(".")[0]
    for unknown in ("0.1", f"{epoch}.9999", f"{epoch}.{'9' * 5_000}", f"{epoch}.-1", f"{epoch}.\u0664"):
        assert [name for name, _ in shown(feed, feed.mark(OWNER, unknown))] == ["resync", "list"]


async def test_the_inbox_is_sent_as_a_whole_and_only_if_it_differs() -> None:
    sources = FilledSources()
    feed = InboxFeed("inbox", sources.waits(None))
    mark = feed.mark(OWNER, "")
    found: list[Any] = []
    for waiting in ((), ("a",), ("a",), ("a", "b")):
        sources.waiting = waiting
        await feed.poll()
        found += [(name, data["items"]) for name, data in shown(feed, mark)]
    assert found == [("inbox", []), ("inbox", ["a"]), ("inbox", ["a", "b"])]
    assert shown(feed, feed.mark(OWNER, feed.position)) == []


async def test_a_lost_server_is_reported_once_and_so_is_its_return() -> None:
    feed = ServerFeed(CLIENT)
    mark = feed.mark(OWNER, "")
    names: list[str] = []
    for is_there in (True, True, False, False, True):
        feed.show(is_there=is_there)
        names += [name for name, _ in shown(feed, mark)]
    assert names == ["offline", "online"]
    feed.show(is_there=False)
    assert [name for name, _ in shown(feed, feed.mark(OWNER, ""))] == ["offline"]


class Time:
    """Sleeps until the test says that time has passed."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, waiting))
        await waiting

    async def pass_by(self, seconds: float) -> None:
        self.now += seconds
        for until, waiting in self._sleepers:
            if until <= self.now and not waiting.done():
                waiting.set_result(None)
        await settled()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def a_hub() -> AsyncGenerator[tuple[Hub, FilledSources, Time]]:
    sources, time = FilledSources(), Time()
    hub = Hub(sources, time.sleep)
    yield hub, sources, time
    await hub.close()


async def test_one_feed_serves_all_viewers_and_ends_some_time_after_the_last() -> None:
    async with a_hub() as (hub, sources, time):
        viewers = [asyncio.Event() for _ in range(50)]
        (feed,) = {hub.join("runs", None, viewer) for viewer in viewers}
        await settled()
        assert sources.looks == 1
        await time.pass_by(1)
        assert sources.looks == 2
        for viewer in viewers:
            hub.leave(feed, viewer)
        await time.pass_by(LINGER_S - 1)
        assert hub.join("runs", None, viewers[0]) is feed
        await time.pass_by(2)
        assert list(hub.feeds) == [feed]
        hub.leave(feed, viewers[0])
        await settled()
        await time.pass_by(LINGER_S)
        looks = sources.looks
        await time.pass_by(10)
        assert (list(hub.feeds), sources.looks) == ([], looks)


async def test_viewers_of_other_tenants_have_lists_of_their_own() -> None:
    async with a_hub() as (hub, _, _):
        groups = (None, frozenset({"a"}), frozenset({"b"}))
        assert len({hub.join("runs", group, asyncio.Event()) for group in groups}) == len(groups)


async def test_a_name_has_a_limit_of_streams() -> None:
    async with a_hub() as (hub, _, _):
        for _ in range(STREAMS_PER_VISITOR):
            hub.begin_stream("ann")
        with pytest.raises(Problem) as refused:
            hub.begin_stream("ann")
        hub.begin_stream("bob")
        hub.end_stream("ann")
        hub.begin_stream("ann")
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "5"})


async def first_events(stream: Stream) -> list[str]:
    """Return the names of the events that a stream has at once."""
    names: list[str] = []

    async def read() -> None:
        async with aclosing(stream.frames()) as frames:
            async for frame in frames:
                names.append(frame.event)

    reading = asyncio.create_task(read())
    await settled()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return names


async def test_the_id_of_an_event_has_the_positions_of_all_topics() -> None:
    async with a_hub() as (hub, sources, _):
        sources.listed = [Listed("a")], {}, False
        stream = Stream(hub, OWNER, ["runs", "inbox", "run:a&b=c"], {"run:a&b=c": "4-abc", "other": "1"})
        assert sorted(await first_events(stream)) == ["inbox", "list", "offline"]
        positions = dict(parse_qsl(stream.id))
        assert positions.keys() == {"runs", "inbox", "run:a&b=c"}
        assert positions["run:a&b=c"] == "4-abc"
        assert await first_events(Stream(hub, OWNER, ["runs", "inbox"], positions)) == ["offline"]


async def test_a_stream_ends_once_its_viewer_may_not_enter_any_more() -> None:
    admitted = [True]
    async with a_hub() as (hub, sources, time):
        frames = encoded_frames(Stream(hub, OWNER, ["inbox"], {}), lambda: admitted[0])
        async with aclosing(frames):
            received = b"".join([await anext(frames) for _ in range(3)])
            assert b"event: inbox" in received
            admitted[0] = False
            upcoming = asyncio.ensure_future(anext(frames, None))
            await settled()
            sources.waiting = ["a"]
            await time.pass_by(1)
            assert await upcoming is None


async def test_a_run_of_another_tenant_gives_a_resync_and_nothing_else() -> None:
    limited = Visitor("ann", tenants=frozenset({"a"}))
    async with a_hub() as (hub, sources, _):
        stream = Stream(hub, limited, ["run:hers"], {})
        async with aclosing(stream.frames()) as frames:
            events = [await anext(frames) for _ in range(2)]
            assert {event.event: json.loads(event.data).get("topics") for event in events} == {
                "offline": None,
                "resync": ["run:hers"],
            }
            assert sources.checks == 1
            assert [feed.topic for feed in hub.feeds] == [""]
