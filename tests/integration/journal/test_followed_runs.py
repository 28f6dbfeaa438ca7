"""Events of real runs, followed from Python and by a browser, across lost connections and rewinds."""

import asyncio
import importlib.util
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from temporalio.client import Client

import orga
from orga import AgentHandle, JournalEntry, LiveActivity
from orga.activities.ports import ModelRequest
from orga.client.history.values import data_converter
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply
from tests.support.hold import PATIENCE_S, Hold
from tests.support.parts.free_port import free_port
from tests.support.programs.orga_command import ROOT
from tests.support.runs.delegates import PAIR, a_cast, delegates, start_lead
from tests.support.runs.long_runs import EACH_ITERATION
from tests.support.runs.loop import a_loop
from tests.support.runs.rewound import wait_for_rewound
from tests.support.web.cut_connection import a_way


class Types:
    """A model that streams the beginning of its answer, then blocks."""

    def __init__(self, text: str, hold: Hold, reply: Reply) -> None:
        self._text, self._hold, self._reply = text, hold, reply

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        on_text(self._text)
        return await self._hold.then(self._reply)


class Reader:
    """Reads the events of a run in its own task."""

    def __init__(self, events: AsyncIterator[JournalEntry | LiveActivity]) -> None:
        self.entries: list[JournalEntry] = []
        self.live: list[LiveActivity] = []
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._read(events))

    async def _read(self, events: AsyncIterator[JournalEntry | LiveActivity]) -> None:
        async for event in events:
            async with self._news:
                if isinstance(event, JournalEntry):
                    self.entries.append(event)
                else:
                    self.live.append(event)
                self._news.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(condition)

    async def to_the_end(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._task

    def journal(self) -> list[JournalEntry]:
        """Return the final entries. After a rewind, new entries replace those from their place on."""
        found: list[JournalEntry] = []
        for entry in self.entries:
            found[entry.sequence :] = [entry]
        return found


async def test_a_follower_survives_a_lost_connection_and_sees_what_a_delegate_streams(client: Client) -> None:
    hold = Hold()
    scripts = {
        "lead": [delegates("helper"), answers("done")],
        "helper": Types("I have looked", hold, answers("found")),
    }
    async with (
        a_cast(client, PAIR, scripts) as (loop, _),
        a_way(client.service_client.config.target_host) as way,
    ):
        far = await Client.connect(way.address, data_converter=data_converter)
        handle = await start_lead(loop)
        reader, other = (Reader(AgentHandle(far, handle.id).events()) for _ in range(2))
        helper = f"{handle.id}.1.0"
        await reader.until(lambda: any((live.run, live.text) == (helper, "I have looked") for live in reader.live))
        seen = reader.entries[-1]
        way.cut()
        hold.go.set()
        ran = await loop.ended(handle)
        await way.open()
        await reader.to_the_end()
        await other.to_the_end()
        rest = [each async for each in AgentHandle(client, handle.id).events(after=seen.cursor)]

    assert reader.entries == other.entries == ran.journal
    assert rest == ran.journal[seen.sequence + 1 :]
    last = {(live.run, live.activity_id): live for live in reader.live}
    assert "reason" in {live.name for live in last.values() if live.run == helper}
    assert [live for live in last.values() if not live.is_over] == []


async def test_a_follower_survives_a_rewind_and_continue_as_new(client: Client) -> None:
    hold = Hold()
    steps = [calls("look"), calls("look"), hold.step(answers("done"))]
    async with a_loop(client, steps, FakeTool("look"), setup=EACH_ITERATION) as loop:
        handle = await loop.start()
        reader = Reader(AgentHandle(client, handle.id).events())
        await hold.reached()
        await reader.until(lambda: bool(reader.live) and reader.live[-1].name == "reason")
        known = len(reader.entries)
        live = orga.runs.timelines_of(client).live_record(handle.id, reader.entries[-1])
        early = await orga.runs.timeline(client, handle.id)
        in_flight = await orga.runs.in_flight(client, handle.id)
        again = await orga.runs.rewind(client, handle.id, 1, steer="look once more")
        hold.go.set()
        ran = await wait_for_rewound(client, again)
        await reader.to_the_end()

    assert reader.journal() == ran.journal
    assert reader.entries[known].sequence < known
    assert reader.entries[known].data["kind"] == "rewind"
    assert [activity.name for activity in in_flight] == ["reason"]
    assert [record.phase for record in early.items] == ["done", "done", "done", "reasoning"]
    assert live in early.items
    late = await orga.runs.timeline(client, handle.id)
    assert [record.number for record in late.items] == list(range(late.total + 1))
    events = [event for record in late.items for event in record.events]
    assert [event.data for event in events if event.event == "InterventionReceived"] == [reader.entries[known].data]
    assert late.items[-1].reply
    assert late.items[-1].reply.head == "done"


@pytest.fixture
def browser(client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[str]:
    """Serve the example on the server of the test suite, and yield its address."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", client.service_client.config.target_host)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("events_app", ROOT / "examples" / "events" / "app.py")
    assert spec is not None
    assert spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with serving(example.app) as address:
        yield address


@contextmanager
def serving(app: Any) -> Generator[str]:
    """Serve an application from a thread with its own event loop."""
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


async def sent(http: httpx.AsyncClient, url: str, last_seen: str | None = None) -> AsyncGenerator[tuple[str, str, Any]]:
    """Yield each event of a stream: kind, id and data."""
    headers = {} if last_seen is None else {"last-event-id": last_seen}
    async with http.stream("GET", url, headers=headers, timeout=PATIENCE_S) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "data" in fields:
                kind, data = fields["event"], fields["data"]
                yield kind, fields.get("id", ""), json.loads(data) if kind != "end" else data
                fields = {}


async def until_it_serves(http: httpx.AsyncClient, url: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(httpx.ConnectError):
                assert (await http.get(url)).status_code == 404
                return
            await asyncio.sleep(0.05)


async def test_a_browser_that_reconnects_continues_where_it_was(client: Client, browser: str) -> None:
    hold = Hold()
    async with a_loop(client, Types("It is", hold, answers("It is so."))) as loop, httpx.AsyncClient() as http:
        await until_it_serves(http, f"{browser}/runs/no-such-run/events")
        handle = await loop.start("What is it?")
        url, seen = f"{browser}/runs/{handle.id}/events", ""
        async for kind, cursor, data in sent(http, url):
            seen = cursor or seen
            if kind == "live" and data["text"] == "It is":
                break
        hold.go.set()
        ran = await loop.ended(handle)
        again = [each async for each in sent(http, url, seen)]
        page = (await http.get(f"{browser}/runs/{handle.id}")).text
        refused = await http.get(url, headers={"host": "rebound.example"})

    assert again[-1] == ("end", "", "the run has ended")
    entries = [JournalEntry.model_validate(data) for kind, _, data in again if kind == "entry"]
    assert entries == [entry for entry in ran.journal if entry.cursor != seen][-len(entries) :]
    assert entries[0].sequence == int(seen.partition("-")[0]) + 1
    assert entries[-1].event == "Terminated"
    assert "EventSource" in page
    assert refused.status_code == 400
