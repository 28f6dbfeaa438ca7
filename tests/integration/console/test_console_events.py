"""The console's stream of events on a real server: many viewers, viewers that come back, slow ones, a lost server."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from orga.client.console import event_stream
from orga.client.console.doors import Doors, Visitor, cookie_name
from orga.client.console.routes import API
from orga.client.history.values import data_converter
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.setup import Setup
from tests.support.console import Served, a_console
from tests.support.hold import PATIENCE_S, Hold, wait_until
from tests.support.runs.approvals import Asks, wait_for_held_calls
from tests.support.runs.loop import Loop, a_loop
from tests.support.web.cut_connection import a_way

FACTS = Setup(agent="", model="", search_attributes=True)
PAYS = [calls("pay", cents=250), answers("paid")]
VIEWERS = 50
SEEN_WITHIN_S = 10.0
RECOVERS_WITHIN_S = 20.0


@pytest.fixture(autouse=True, scope="module")
async def _attributes(client: Client) -> None:
    await register_missing(client)


class Got(NamedTuple):
    """An event as a browser gets it."""

    id: str
    event: str
    data: Any
    at: float


class Viewer:
    """Reads a stream in a task of its own."""

    def __init__(self, console: Served, query: Mapping[str, str], last_id: str = "") -> None:
        self.got: list[Got] = []
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._read(console, query, last_id))

    async def _read(self, console: Served, query: Mapping[str, str], last_id: str) -> None:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        async with console.http.stream("GET", f"{API}/events", params=query, headers=headers, timeout=None) as answer:
            assert answer.status_code == 200
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                fields[name] = value
                if not line and "event" in fields:
                    got = Got(fields["id"], fields["event"], json.loads(fields["data"]), monotonic())
                    async with self._news:
                        self.got.append(got)
                        self._news.notify_all()
                if not line:
                    fields = {}

    def of(self, event: str) -> list[Any]:
        """Return the data of all events of a type."""
        return [got.data for got in self.got if got.event == event]

    @property
    def sequences(self) -> list[int]:
        return [data["entry"]["sequence"] for data in self.of("entry")]

    async def until(self, condition: Callable[["Viewer"], Any]) -> Any:
        """Wait until a condition holds, and return its value."""
        async with asyncio.timeout(PATIENCE_S), self._news:
            return await self._news.wait_for(lambda: condition(self))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def viewing(console: Served, *topics: str, last_id: str = "", after: str = "") -> AsyncGenerator[Viewer]:
    """Open a stream and close it in the end."""
    viewer = Viewer(console, {"topics": ",".join(topics), **({"after": after} if after else {})}, last_id)
    try:
        yield viewer
    finally:
        await viewer.close()


@asynccontextmanager
async def a_held_run(client: Client) -> AsyncGenerator[tuple[Loop, WorkflowHandle[Any, Any], dict[str, Any]]]:
    """Start a run, and wait until it holds a call."""
    async with a_loop(client, PAYS, FakeTool("pay"), engine=Asks(), setup=FACTS) as loop:
        run = await loop.start("pay")
        yield loop, run, (await wait_for_held_calls(run))[0]


async def approve(run: WorkflowHandle[Any, Any], approval_id: str) -> None:
    await run.execute_update("approve", {"approval_id": approval_id, "approver": "ada"})  # pyright: ignore[reportUnknownMemberType]


async def event_types(run: WorkflowHandle[Any, Any]) -> list[str]:
    """Return the types of all events, except for workflow tasks, whose number depends on the machine."""
    names = [EventType.Name(event.event_type) async for event in run.fetch_history_events()]
    return [name for name in names if "WORKFLOW_TASK" not in name]


async def history_bytes(run: WorkflowHandle[Any, Any]) -> list[bytes]:
    return [event.SerializeToString(deterministic=True) async for event in run.fetch_history_events()]


def entry_seen(viewer: Viewer, event: str) -> float | None:
    """Return when a viewer saw the first entry of a type."""
    return next((got.at for got in viewer.got if got.event == "entry" and got.data["entry"]["event"] == event), None)


async def test_fifty_viewers_see_an_approval_at_once_and_cost_the_server_one_watcher(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "STREAMS_PER_VISITOR", VIEWERS)
    async with a_held_run(client) as (loop, run, held), a_console(client, loop.task_queue) as console:
        before = await history_bytes(run)
        asked: list[str] = []
        count_history_requests(client, monkeypatch, run.id, asked)
        async with AsyncExitStack() as stack:
            viewers = [await stack.enter_async_context(viewing(console, f"run:{run.id}")) for _ in range(VIEWERS)]
            for viewer in viewers:
                await viewer.until(lambda each: each.of("state"))
            assert len(asked) <= 2
            (wait,) = viewers[0].of("state")[0]["waits"]
            assert (wait["id"], wait["arguments"]) == (held["approval_id"], {"cents": 250})
            assert await history_bytes(run) == before

            began = monotonic()
            await approve(run, held["approval_id"])
            for viewer in viewers:
                await viewer.until(lambda each: entry_seen(each, "ApprovalResolved"))
            latest = max(entry_seen(viewer, "ApprovalResolved") or 0.0 for viewer in viewers)
            for viewer in viewers:
                await viewer.until(lambda each: each.of("state")[-1]["result"])
        ran = await loop.ended(run)

    async with a_held_run(client) as (loop, unwatched, again):
        await approve(unwatched, again["approval_id"])
        await loop.ended(unwatched)
    assert await event_types(run) == await event_types(unwatched)
    assert latest - began < SEEN_WITHIN_S
    (sequences,) = {tuple(viewer.sequences) for viewer in viewers}
    assert list(sequences) == [entry.sequence for entry in ran.journal][-len(sequences) :]
    assert viewers[0].of("state")[-1]["state"] == "completed"
    records = [data["record"] for data in viewers[0].of("entry") if data["record"]]
    (call,) = next(record["calls"] for record in reversed(records) if record["number"] == 1)
    assert (call["tool"], call["state"], call["approver"], call["verdict"]) == ("pay", "ok", "ada", "approval")


def count_history_requests(client: Client, monkeypatch: pytest.MonkeyPatch, run_id: str, asked: list[str]) -> None:
    service = client.workflow_service
    request = service.get_workflow_execution_history

    async def counted(req: Any, **options: Any) -> Any:
        if req.execution.workflow_id == run_id and req.wait_new_event:
            asked.append(run_id)
        return await request(req, **options)

    monkeypatch.setattr(service, "get_workflow_execution_history", counted)


async def test_a_viewer_that_comes_back_misses_nothing_and_gets_nothing_twice(client: Client) -> None:
    hold = Hold()
    steps = [calls("look"), calls("look"), hold.step(calls("look")), answers("done")]
    async with a_loop(client, steps, FakeTool("look")) as loop:
        run = await loop.start()
        await hold.reached()
        async with a_console(client) as console:
            async with viewing(console, f"run:{run.id}", after=urlencode({f"run:{run.id}": "-1"})) as viewer:
                await viewer.until(lambda each: len(each.of("entry")) > 3 and each.of("live"))
            first = viewer.got[:3]
            async with viewing(console, f"run:{run.id}", last_id=first[-1].id) as again:
                await again.until(lambda each: each.of("live"))
        hold.go.set()
        ran = await loop.ended(run)
        async with (
            a_console(client) as restarted,
            viewing(restarted, f"run:{run.id}", last_id=again.got[-1].id) as rest,
        ):
            await rest.until(lambda each: each.of("state") and entry_seen(each, "Terminated"))

    got = [each.data["entry"] for each in (*first, *again.got, *rest.got) if each.event == "entry"]
    assert [each["cursor"] for each in got] == [entry.cursor for entry in ran.journal]
    assert [each["event"] for each in got] == ran.events
    assert [each.event for each in (*again.got, *rest.got) if each.event == "resync"] == []


async def test_a_viewer_that_reads_nothing_delays_nobody(client: Client) -> None:
    async with a_held_run(client) as (loop, run, held), a_console(client, loop.task_queue) as console:
        host, port = console.base.removeprefix("http://").split(":")
        stalled = [socket.create_connection((host, int(port))) for _ in range(3)]
        for each in stalled:
            path = f"{API}/events?{urlencode({'topics': f'run:{run.id},runs,inbox'})}"
            cookie = f"{cookie_name(console.base)}={console.console.doors.token}"
            each.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
        async with viewing(console, f"run:{run.id}", "inbox") as viewer:
            await viewer.until(lambda each: each.of("state") and each.of("inbox"))
            began = monotonic()
            await approve(run, held["approval_id"])
            seen = await viewer.until(lambda each: entry_seen(each, "ApprovalResolved"))
            await viewer.until(lambda each: all(wait["run"] != run.id for wait in each.of("inbox")[-1]["items"]))
        await loop.ended(run)
        for each in stalled:
            each.close()
    assert seen - began < SEEN_WITHIN_S


async def test_the_list_and_the_inbox_follow_the_runs(client: Client) -> None:
    async with (
        a_loop(client, PAYS, FakeTool("pay"), engine=Asks(), setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
        viewing(console, "runs", "inbox") as viewer,
    ):
        await viewer.until(lambda each: each.of("list") and each.of("inbox"))
        run = await loop.start("pay")

        def row(each: Viewer) -> dict[str, Any]:
            rows = [row for data in each.of("list") for row in data["rows"] if row["id"] == run.id]
            return rows[-1] if rows else {}

        def waits(each: Viewer) -> list[Any]:
            return [wait for wait in each.of("inbox")[-1]["items"] if wait["run"] == run.id]

        (wait,) = await viewer.until(waits)
        await viewer.until(lambda each: row(each).get("waiting") == "approval")
        assert wait["arguments"] == {"cents": 250}
        await approve(run, wait["id"])
        await viewer.until(lambda each: not waits(each))
        await viewer.until(lambda each: row(each).get("state") == "completed")
        assert row(viewer)["task"] == "pay"
        await loop.ended(run)


async def test_a_lost_server_is_reported_and_the_stream_goes_on_after_it(client: Client) -> None:
    async with a_held_run(client) as (loop, run, held), a_way(client.service_client.config.target_host) as way:
        far = await Client.connect(way.address, data_converter=data_converter)
        async with a_console(far, loop.task_queue) as console, viewing(console, f"run:{run.id}") as viewer:
            await viewer.until(lambda each: each.of("state"))
            way.cut()
            await viewer.until(lambda each: each.of("offline"))
            await approve(run, held["approval_id"])
            ran = await loop.ended(run)
            await way.open()
            began = monotonic()
            await viewer.until(lambda each: each.of("online"))
            seen = await viewer.until(lambda each: entry_seen(each, "Terminated"))
    assert seen - began < RECOVERS_WITHIN_S
    assert viewer.sequences == [entry.sequence for entry in ran.journal][-len(viewer.sequences) :]


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({}, id="no topics"),
        pytest.param({"topics": "runs,nothing"}, id="an unknown topic"),
        pytest.param({"topics": "run:"}, id="no run"),
        pytest.param({"topics": "runs", "extra": "1"}, id="an unknown parameter"),
    ],
)
async def test_a_wrong_request_is_refused(client: Client, query: dict[str, str]) -> None:
    async with a_console(client) as console:
        answer = await console.http.get(f"{API}/events", params=query)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def visitor_of_tenant(tenant: str) -> Callable[[Doors, object], Visitor]:
    return lambda doors, connection: Visitor(tenant, tenants=frozenset({tenant}))


async def test_a_viewer_of_another_tenant_gets_nothing_of_a_run(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = f"south-{uuid4()}"  # without runs of other tests
    async with a_loop(client, PAYS, FakeTool("pay"), engine=Asks(), setup=FACTS) as loop:
        run = await loop.start({"task": "pay", "tenant": "north"})
        await wait_for_held_calls(run)
        got: dict[str, Viewer] = {}
        async with a_console(client, loop.task_queue) as console:
            for tenant in ("north", elsewhere):
                monkeypatch.setattr(Doors, "visitor", visitor_of_tenant(tenant))
                async with viewing(console, "runs", "inbox", f"run:{run.id}") as got[tenant]:
                    await got[tenant].until(lambda each: each.of("list") and each.of("inbox"))
                    await got[tenant].until(lambda each: each.of("state") or each.of("resync"))
        await run.terminate()

    assert run.id in str(got["north"].of("list"))
    assert run.id in str(got["north"].of("inbox"))
    south = got[elsewhere]
    assert south.of("resync") == [{"topics": [f"run:{run.id}"]}]
    assert run.id not in str([each.data for each in south.got if each.event != "resync"])
    assert south.of("list")[0]["counts"]["all"] == 0


async def is_accepted(console: Served) -> bool:
    async with console.http.stream("GET", f"{API}/events", params={"topics": "inbox"}) as answer:
        return answer.status_code == 200


async def test_a_ninth_stream_of_a_name_is_refused_and_pings_keep_the_others_open(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "PING_S", 0.1)
    async with a_console(client) as console, AsyncExitStack() as stack:
        viewers = [
            await stack.enter_async_context(viewing(console, "inbox")) for _ in range(event_stream.STREAMS_PER_VISITOR)
        ]
        for viewer in viewers:
            await viewer.until(lambda each: len(each.of("ping")) > 1 and each.of("inbox"))
        refused = await console.http.get(f"{API}/events", params={"topics": "inbox"})
        await viewers.pop().close()
        await wait_until(lambda: is_accepted(console))
    assert (refused.status_code, refused.headers["content-type"]) == (429, "application/problem+json")
    assert viewers[0].of("ping")[-1] == {}
    assert len({got.id for got in viewers[0].got[-2:]}) == 1


async def test_an_unknown_run_gives_a_resync(client: Client) -> None:
    async with a_console(client) as console, viewing(console, "run:nobody") as viewer:
        assert await viewer.until(lambda each: each.of("resync")) == [{"topics": ["run:nobody"]}]
