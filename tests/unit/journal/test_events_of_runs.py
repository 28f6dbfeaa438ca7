"""Following a run: all readers share one reading, through rewinds and lost servers, from any position."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import ActivityType, Payload, Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import (
    ActivityTaskCompletedEventAttributes,
    ActivityTaskScheduledEventAttributes,
    HistoryEvent,
)
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client

from orga.client.errors import RunNotFound, ServerLost
from orga.client.history.values import data_converter
from orga.client.journal import watcher
from orga.client.journal.reading import Observe, ObservedEvent, SeenEntries
from orga.client.journal.watcher import RunEvent, run_events
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import Happening, HappeningKind, JournalEntry
from tests.unit.journal.test_journal_chain import chain

SOON_S = 5.0


def journal(names: str) -> list[JournalEntry]:
    """Return a chained entry for each letter."""
    return chain([(name, 0, {}) for name in names])


def observed(event: HistoryEvent) -> ObservedEvent:
    """Return the event as a reader of the journal passes it on. Its activity, if it has one, is the activity "1"."""
    kinds: dict[int, HappeningKind] = {SCHEDULED.event_id: "scheduled", COMPLETED.event_id: "finished"}
    kind = kinds.get(event.event_id)
    happening = Happening(kind, datetime.now(UTC), event.event_id, key="1") if kind else None
    return ObservedEvent("segment", event, happening, (), later_segments=0, is_latest=True)


class Server:
    """Has one journal that can grow, be rewound, or be unreadable for a while."""

    def __init__(self, names: str = "") -> None:
        self.names = names
        self.events = [HistoryEvent()]
        """The events that follow the entries."""
        self.is_over = False
        self.lost: Exception | None = None
        self.readings = 0
        self.read_again = 0
        self._changed = asyncio.Event()

    def becomes(self, names: str, *, is_over: bool = False, lost: Exception | None = None) -> None:
        self.names, self.is_over, self.lost = names, is_over, lost
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(
        self,
        _client: Any,
        _id: str,
        *,
        follow: bool = False,
        seen: SeenEntries | None = None,
        observe: Observe | None = None,
    ) -> AsyncGenerator[JournalEntry]:
        self.readings += follow
        self.read_again += not follow
        seen = SeenEntries() if seen is None else seen
        while True:
            changed, is_over = self._changed, self.is_over
            if self.lost:
                raise self.lost
            for entry in journal(self.names):
                await asyncio.sleep(0)  # as for the next page
                if seen.is_new(entry):
                    yield entry
            if observe:
                for event in self.events:
                    observe(observed(event))
            if is_over or not follow:
                return
            await changed.wait()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(watcher, "read_journal", made.read)
    monkeypatch.setattr(watcher, "AGAIN_S", 0.0)
    return made


class AClient(Client):
    """Has no server. Each poll finds the next of these lists of pending activities, and then always the last."""

    def __init__(self, *looks: Sequence[PendingActivityInfo]) -> None:
        self._config: Any = {"data_converter": data_converter, "namespace": "default"}
        self.looks = list(looks)
        self.looked = 0

    def get_workflow_handle(self, workflow_id: str, **_: Any) -> Any:
        return SimpleNamespace(describe=self._describe)

    async def _describe(self) -> Any:
        self.looked += 1
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return SimpleNamespace(raw_description=DescribeWorkflowExecutionResponse(pending_activities=found))


def shown(event: RunEvent) -> str:
    if isinstance(event, JournalEntry):
        return f"{event.sequence}{event.event}"
    return f"{event.name}:{event.text}{'!' if event.is_over else ''}"


async def taken(stream: AsyncGenerator[RunEvent], count: int) -> str:
    """Return the next events."""
    async with asyncio.timeout(SOON_S):
        return " ".join([shown(await anext(stream)) for _ in range(count)])


async def rest(stream: AsyncGenerator[RunEvent]) -> str:
    """Return all remaining events."""
    async with asyncio.timeout(SOON_S):
        return " ".join([shown(event) async for event in stream])


async def test_all_readers_of_a_run_share_one_reading_until_the_last_one_stops(server: Server) -> None:
    client = AClient()
    server.becomes("ab")
    async with aclosing(run_events(client, "r")) as one, aclosing(run_events(client, "r")) as other:
        assert await taken(one, 2) == await taken(other, 2) == "0a 1b"
        server.becomes("abc")
        assert await taken(one, 1) == await taken(other, 1) == "2c"
        assert server.readings == 1
    assert not watcher._WATCHERS[client]
    server.becomes("abcd", is_over=True)
    assert await rest(run_events(client, "r")) == "0a 1b 2c 3d"
    assert server.readings == 2


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (None, "0a 1b 2c"),
        (-1, "0a 1b 2c"),
        (0, "1b 2c"),
        ("1", "2c"),
        (2, ""),
        (journal("ab")[1].cursor, "2c"),
        (journal("abc")[2].cursor, ""),
        (journal("ax")[1].cursor, "0a 1b 2c"),
        (7, "0a 1b 2c"),
        (journal("abcdef")[5].cursor, "0a 1b 2c"),
    ],
    ids=[
        "nothing",
        "before the first",
        "a sequence",
        "a sequence as text",
        "the last sequence",
        "a cursor",
        "the last cursor",
        "a cursor before a rewind",
        "a sequence before a rewind",
        "a cursor beyond the end, before a rewind",
    ],
)
@pytest.mark.parametrize("is_over", [True, False], ids=["ended", "live"])
async def test_a_reader_continues_after_its_position(
    server: Server, after: int | str | None, expected: str, is_over: bool
) -> None:
    server.becomes("abc", is_over=is_over)
    stream = run_events(AClient(), "r", after)
    if not is_over:
        asyncio.get_running_loop().call_later(0.01, lambda: server.becomes("abcZ", is_over=True))
        expected = f"{expected} 3Z".strip()
    assert await rest(stream) == expected


@pytest.mark.parametrize("after", ["x", "1-", "1-XYZ", "-2", -2, "1.5", "1-abc\n", "9" * 400])
async def test_an_invalid_position_is_refused(server: Server, after: int | str) -> None:
    with pytest.raises(InvalidInput, match=r"^after: .* Pass entry\.sequence or entry\.cursor$"):
        await anext(run_events(AClient(), "r", after))
    assert server.readings == 0


async def test_a_reader_of_a_rewound_run_continues_with_the_replacing_entry(server: Server) -> None:
    server.becomes("abcd")
    async with aclosing(run_events(AClient(), "r")) as one:
        assert await taken(one, 4) == "0a 1b 2c 3d"
        server.becomes("abx")
        assert await taken(one, 1) == "2x"
        server.becomes("abxyz", is_over=True)
        assert await rest(one) == "3y 4z"


async def test_a_reader_that_missed_two_rewinds_continues_from_the_earlier_one(server: Server) -> None:
    client = AClient()
    server.becomes("abcdef")
    async with aclosing(run_events(client, "r")) as quick, aclosing(run_events(client, "r")) as slow:
        await taken(slow, 6)
        await taken(quick, 6)
        server.becomes("axy")
        await taken(quick, 2)
        server.becomes("axyzuvw")
        await taken(quick, 4)
        server.becomes("axyzuvT", is_over=True)
        assert await rest(quick) == "6T"
        assert await rest(slow) == "1x 2y 3z 4u 5v 6T"


@pytest.mark.parametrize("kept", [("KEPT_ENTRIES", 2), ("KEPT_BYTES", 2)], ids=["few entries", "few bytes"])
@pytest.mark.parametrize("after", [None, 2], ids=["from the first entry", "from a later one"])
async def test_a_late_reader_reads_older_entries_from_the_history(
    server: Server, monkeypatch: pytest.MonkeyPatch, after: int | None, kept: tuple[str, int]
) -> None:
    monkeypatch.setattr(watcher, *kept)
    client = AClient()
    server.becomes("abcdefg")
    async with aclosing(run_events(client, "r")) as early, aclosing(run_events(client, "r", after)) as late:
        assert (await taken(early, 7)).endswith("6g")
        assert await taken(late, 4) == ("3d 4e 5f 6g" if after else "0a 1b 2c 3d")
        assert server.readings == server.read_again == 1


async def test_a_slow_reader_misses_no_entry(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "KEPT_ENTRIES", 2)
    client = AClient()
    server.becomes("a")
    async with aclosing(run_events(client, "r")) as quick, aclosing(run_events(client, "r")) as slow:
        assert await taken(slow, 1) == await taken(quick, 1)
        for length in range(2, 12):
            server.becomes("abcdefghijkl"[:length])
            await taken(quick, 1)
        server.becomes("abcdefghijkl", is_over=True)
        assert await rest(slow) == "1b 2c 3d 4e 5f 6g 7h 8i 9j 10k 11l"


class Clock:
    """Advances by a given time at each attempt to read."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch, silences_s: Sequence[float]) -> None:
        self.now, self.left, self._server = 0.0, list(silences_s), server
        monkeypatch.setattr(watcher, "monotonic", lambda: self.now)
        monkeypatch.setattr(watcher, "read_journal", self.read)

    async def read(self, *given: Any, **more: Any) -> AsyncGenerator[JournalEntry]:
        silence_s = self.left.pop(0)
        if silence_s > 10.0:
            more["observe"](observed(HistoryEvent()))
        self.now += silence_s
        if self.left:
            raise ServerLost("the history cannot be read: transport error")
        async for entry in self._server.read(*given, **more):
            yield entry


@pytest.mark.parametrize(
    ("silences_s", "is_waited_for"),
    [
        ([5.0, 5.0, 5.0, 0.0], True),
        ([3_600.0, 5.0, 3_600.0, 5.0, 0.0], True),
        ([3_600.0, *[9.0] * 20], False),
        ([9.0] * 20, False),
    ],
    ids=[
        "a server that is back soon",
        "one that is lost after a long silence",
        "one that stays away",
        "a journal that becomes unreadable",
    ],
)
async def test_a_lost_server_is_retried_for_a_minute(
    server: Server, monkeypatch: pytest.MonkeyPatch, silences_s: list[float], is_waited_for: bool
) -> None:
    server.becomes("ab", is_over=True)
    clock = Clock(server, monkeypatch, silences_s)
    if is_waited_for:
        assert await rest(run_events(AClient(), "r")) == "0a 1b"
        return
    with pytest.raises(ServerLost, match="transport error"):
        await rest(run_events(AClient(), "r"))
    assert 60 < clock.now - (3_600 if silences_s[0] > 60 else 0) < 80


@pytest.mark.parametrize("fault", [RunNotFound("r"), ValueError("a codec fails")], ids=["no such run", "a defect"])
async def test_a_permanent_error_reaches_each_reader(server: Server, fault: Exception) -> None:
    client = AClient()
    server.becomes("ab")
    async with aclosing(run_events(client, "r")) as one, aclosing(run_events(client, "r")) as other:
        await taken(one, 1)
        await taken(other, 2)
        server.becomes("ab", lost=fault)
        for stream in (one, other):
            with pytest.raises(type(fault), match=str(fault)):
                await rest(stream)
    server.becomes("ab", is_over=True)
    assert await rest(run_events(client, "r")) == "0a 1b"


SCHEDULED = HistoryEvent(
    event_id=5,
    event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    activity_task_scheduled_event_attributes=ActivityTaskScheduledEventAttributes(activity_id="1"),
)
COMPLETED = HistoryEvent(
    event_id=7,
    event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
    activity_task_completed_event_attributes=ActivityTaskCompletedEventAttributes(scheduled_event_id=5),
)


def pending(details: bytes = b"", *, activity_id: str = "1", name: str = "reason") -> PendingActivityInfo:
    """Return a pending activity with the details of its latest heartbeat."""
    found = PendingActivityInfo(activity_id=activity_id, activity_type=ActivityType(name=name), attempt=1)
    if details:
        found.heartbeat_details.CopyFrom(
            Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=details)])
        )
    return found


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "FIRST_LOOK_S", 0.001)
    monkeypatch.setattr(watcher, "LAST_LOOK_S", 0.001)


@pytest.mark.usefixtures("quick_looks")
async def test_streamed_text_is_shown_until_the_journal_has_the_result(server: Server) -> None:
    words = [pending(), pending(b'{"text": "It is"}'), pending(b'{"text": "It is so."}')]
    client = AClient(*([each] for each in words))
    server.becomes("ab")
    server.events = [SCHEDULED]
    async with aclosing(run_events(client, "r")) as stream:
        assert await taken(stream, 5) == "0a 1b reason: reason:It is reason:It is so."
        server.events = [COMPLETED]
        server.becomes("abc")
        assert await taken(stream, 2) == "reason:It is so.! 2c"
        looked = client.looked
        await asyncio.sleep(0.05)
        assert client.looked == looked, "no polling without pending activities"
        server.becomes("abcT", is_over=True)
        assert await rest(stream) == "3T"


@pytest.mark.usefixtures("quick_looks")
async def test_a_late_reader_sees_pending_activities_once(server: Server) -> None:
    client = AClient([pending(b'{"text": "It is"}'), pending(b'{"text": "of an older look"}', activity_id="0")])
    server.becomes("ab")
    server.events = [SCHEDULED]
    async with aclosing(run_events(client, "r")) as early, aclosing(run_events(client, "r", after=1)) as late:
        assert await taken(early, 3) == "0a 1b reason:It is"
        assert await taken(late, 1) == "reason:It is"
        server.becomes("abc")
        assert await taken(late, 1) == "2c"


@pytest.mark.parametrize(
    ("details", "text"),
    [
        (b'{"note": "half of it"}', "half of it"),
        (b'{"text": 7}', ""),
        (b"[1]", ""),
        (b"null", ""),
        (b"\xff no JSON", ""),
    ],
    ids=["a tool's note", "a number", "a list", "nothing", "invalid JSON"],
)
@pytest.mark.usefixtures("quick_looks")
async def test_a_heartbeat_of_any_form_can_be_shown(server: Server, details: bytes, text: str) -> None:
    server.events = [SCHEDULED]
    async with aclosing(run_events(AClient([pending(details, name="sum")]), "r")) as stream:
        assert await taken(stream, 1) == f"sum:{text}"
