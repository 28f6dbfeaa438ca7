"""The doors on a real socket: many streams, slow and oversized requests, requests within requests, forged names."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest
from temporalio.client import Client

from orga.client.console import serving
from orga.client.console.actions import ACTIONS
from orga.client.console.doors import MAX_BODY_BYTES, Limits, TokenFile
from orga.client.console.event_stream import STREAMS_PER_VISITOR
from orga.client.console.routes import API
from orga.client.server.search_attributes import register_missing
from tests.support.console import Served, a_console
from tests.support.hold import PATIENCE_S

STREAMS = 200
DELAY_S = 10.0
"""Seconds that a request may take meanwhile, on a machine that does other things, too. The figures have the target."""
LOOKS = 20


class Scene(NamedTuple):
    console: Served
    tokens: Sequence[str]
    """Tokens of many people, each with the role of a viewer."""

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.console.base.removeprefix("http://").split(":")
        return host, int(port)

    def head(self, method: str, path: str, *headers: str, token: str = "") -> bytes:
        host, port = self.address
        login = f"Authorization: Bearer {token or self.console.console.doors.token}"
        return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}:{port}", login, *headers, "", ""]).encode()


@asynccontextmanager
async def a_scene(client: Client, folder: Path) -> AsyncGenerator[Scene]:
    await register_missing(client)
    file = TokenFile(folder / "tokens.json")
    tokens = [file.add(f"viewer {number}", "viewer", []) for number in range(-(-STREAMS // STREAMS_PER_VISITOR))]
    async with a_console(client, tokens=file, limits=Limits(1_000, 1_000)) as console:
        yield Scene(console, tokens)


@pytest.fixture(scope="module")
async def scene(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Scene]:
    async with a_scene(client, tmp_path_factory.mktemp("doors")) as scene:
        yield scene


@asynccontextmanager
async def connections(scene: Scene, *beginnings: bytes) -> AsyncGenerator[list[asyncio.StreamReader]]:
    """Open a connection for each beginning of a request, and send no more."""
    opened = [await asyncio.open_connection(*scene.address) for _ in beginnings]
    try:
        for (_, writer), beginning in zip(opened, beginnings, strict=True):
            writer.write(beginning)
            await writer.drain()
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.close()


async def slowest_answer(scene: Scene) -> float:
    """Return the seconds of the slowest request of the owner, who looks and writes."""
    slowest = 0.0
    for number in range(LOOKS):
        began = monotonic()
        path = ("/me", "/runs", "/inbox")[number % 3]
        await scene.console.get(path)
        written = await scene.console.post("/markdown", {"texts": ["a"]})
        assert written.status_code == 200
        slowest = max(slowest, monotonic() - began)
    return slowest


async def slowest_beside_streams(scene: Scene) -> float:
    path = f"{API}/events?topics=runs,inbox"
    requests = [scene.head("GET", path, token=scene.tokens[number // STREAMS_PER_VISITOR]) for number in range(STREAMS)]
    async with connections(scene, *requests) as readers, asyncio.timeout(2 * PATIENCE_S):
        for reader in readers:
            assert b" 200 " in await reader.readline()
            await reader.readuntil(b"event: list")
        return await slowest_answer(scene)


@pytest.mark.timeout(120)
async def test_two_hundred_streams_of_many_people_delay_nobody(scene: Scene) -> None:
    assert await slowest_beside_streams(scene) < DELAY_S


async def test_slow_heads_and_bodies_delay_nobody(scene: Scene) -> None:
    slow_heads = [f"GET {API}/me HTTP/1.1\r\nHost: 127".encode()] * 100
    length = "Content-Length: 100"
    slow_bodies = [scene.head("POST", f"{API}/markdown", "Content-Type: application/json", "X-Orga-Console: 1", length)]
    async with connections(scene, *slow_heads, *(slow_bodies * 100)):
        assert await slowest_answer(scene) < DELAY_S


async def test_a_connection_without_a_whole_head_is_closed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.5)
    slow_body = scene.head("POST", f"{API}/markdown", *WRITE, "Content-Length: 100")
    stream = scene.head("GET", f"{API}/events?topics=runs")
    async with connections(scene, b"", b"GET /api", slow_body, stream) as opened:
        for late in opened[:2]:
            assert await asyncio.wait_for(late.read(), PATIENCE_S) == b""
        assert (await asyncio.wait_for(opened[3].readline(), PATIENCE_S)).endswith(b" 200 OK\r\n")
        await asyncio.sleep(1.0)  # twice the limit
        assert [reader.at_eof() for reader in opened] == [True, True, False, False]


async def test_a_connection_without_a_whole_body_is_closed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep it open, also after the answer to somebody who may not enter."""
    monkeypatch.setattr(serving, "BODY_S", 1.0)
    length, chunks = "Content-Length: 100000", "Transfer-Encoding: chunked"
    beginnings = [
        scene.head("POST", f"{API}/markdown", *WRITE, rest, token=token)
        for rest in (length, chunks)
        for token in ("", "x")
    ]
    whole = scene.head("POST", f"{API}/markdown", *WRITE, "Content-Length: 13") + b'{"texts":[1]}'
    streams = [await asyncio.open_connection(*scene.address) for _ in (*beginnings, whole)]
    try:
        for (_, writer), beginning in zip(streams, (*beginnings, whole), strict=True):
            writer.write(beginning)
        pending = [asyncio.ensure_future(until_closed(reader)) for reader, _ in streams]
        async with asyncio.timeout(PATIENCE_S):
            while not all(each.done() for each in pending):
                for _, writer in streams[: len(beginnings)]:
                    writer.write(b"1\r\na\r\n")
                await asyncio.sleep(0.1)
        answers = [await each for each in pending]
        assert [b" 401 " in answer for answer in answers] == [False, True, False, True, False]
        assert b" 422 " in answers[-1]
    finally:
        for _, writer in streams:
            writer.close()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return all that the console answers. A reset closes, too: the console closes while bytes are under way to it."""
    answer = b""
    with suppress(ConnectionResetError):
        while data := await reader.read(65_536):
            answer += data
    return answer


async def answer_to(scene: Scene, request: bytes) -> bytes:
    """Return all that the console answers until it closes the connection, or nothing more comes."""
    loop = asyncio.get_running_loop()
    with socket.create_connection(scene.address) as connection:
        connection.setblocking(False)
        await loop.sock_sendall(connection, request)
        answer = b""
        try:
            while data := await asyncio.wait_for(loop.sock_recv(connection, 65_536), 1.0 if answer else PATIENCE_S):
                answer += data
        except (TimeoutError, ConnectionResetError):
            pass
        return answer


WRITE = ("Content-Type: application/json", "X-Orga-Console: 1")
OVERSIZED: dict[str, tuple[tuple[str, ...], bytes, bytes]] = {
    "a body that announces its length": ((*WRITE, f"Content-Length: {MAX_BODY_BYTES + 1}"), b"{", b" 413 "),
    "a body without a length": (
        (*WRITE, "Transfer-Encoding: chunked"),
        b"186A0\r\n" + b"a" * 100_000 + b"\r\n" + b"DBBA0\r\n" + b"a" * 900_000 + b"\r\n5\r\nmore.\r\n",
        b" 413 ",
    ),
    "a head": (("X-Long: " + "a" * 200_000,), b"", b" 400 "),
    "many headers": (tuple(f"X-{number}: a" for number in range(20_000)), b"", b" 400 "),
}


@pytest.mark.parametrize(("headers", "body", "status"), OVERSIZED.values(), ids=OVERSIZED)
async def test_what_is_too_long_is_refused(scene: Scene, headers: tuple[str, ...], body: bytes, status: bytes) -> None:
    answer = await answer_to(scene, scene.head("POST", f"{API}/markdown", *headers) + body)
    assert status in answer.partition(b"\r\n")[0], answer[:300]


HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: evil.example\r\n\r\n"
JSON = "Content-Type: application/json"
SMUGGLED: dict[str, tuple[tuple[str, ...], bytes]] = {
    "two lengths": (("Content-Length: 0", f"Content-Length: {len(HIDDEN)}"), HIDDEN),
    "a list of lengths": ((f"Content-Length: 0, {len(HIDDEN)}",), HIDDEN),
    "a signed length": (("Content-Length: +0",), HIDDEN),
    "a negative length": (("Content-Length: -1",), HIDDEN),
    "a length and chunks": (("Content-Length: 4", "Transfer-Encoding: chunked"), b"0\r\n\r\n" + HIDDEN),
    "an unknown coding": (("Transfer-Encoding: xchunked",), b"0\r\n\r\n" + HIDDEN),
    "a second coding": (("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), b"0\r\n\r\n" + HIDDEN),
    "a coding after a space": (("Transfer-Encoding : chunked",), b"0\r\n\r\n" + HIDDEN),
    "a wrong chunk": (("Transfer-Encoding: chunked",), b"-1\r\n\r\n" + HIDDEN),
    "a chunk that ends early": (("Transfer-Encoding: chunked",), b"1\r\nab0\r\n\r\n" + HIDDEN),
    "a NUL byte in a header": (("X-A: \x00", "Content-Length: 0"), HIDDEN),
}


@pytest.mark.parametrize(("headers", "body"), SMUGGLED.values(), ids=SMUGGLED)
async def test_no_request_hides_in_another(scene: Scene, headers: tuple[str, ...], body: bytes) -> None:
    """A proxy and the console must not disagree about where a request ends."""
    answer = await answer_to(scene, scene.head("POST", f"{API}/markdown", JSON, "X-Orga-Console: 1", *headers) + body)
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    assert answer.split(b" ", 2)[1] == b"400", answer


FORGED = {"X-Forwarded-User": "eve", "X-Forwarded-Groups": "orga:admin", "X-Remote-User": "eve", "By": "eve"}


@pytest.mark.parametrize("kind", ACTIONS)
async def test_no_action_takes_its_sender_from_the_client(scene: Scene, kind: str) -> None:
    body = {"id": "a", "kind": kind, "by": "eve", "approver": "eve", "sender": {"by": "eve"}}
    answer = await scene.console.post("/runs/any/actions", body, headers=FORGED)
    refused = {error["where"] for error in answer.json()["errors"]}
    assert (answer.status_code, refused >= {"by", "approver", "sender"}) == (422, True)


async def test_no_header_changes_the_name(scene: Scene) -> None:
    me = await scene.console.http.get(f"{API}/me", headers=FORGED)
    assert me.json()["name"] == scene.console.console.doors.owner


async def test_consoles_of_one_host_do_not_take_each_others_cookies(client: Client, scene: Scene) -> None:
    """A browser sends the cookies of a host to all its ports."""
    async with a_console(client) as other, httpx.AsyncClient() as browser:
        first, second = scene.console, other

        async def name_at(console: Served) -> Any:
            return (await browser.get(f"{console.base}{API}/me")).status_code

        for console in (first, second):
            entered = await browser.get(f"{console.base}/", params={"token": console.console.doors.token})
            assert entered.status_code == 303
        assert [await name_at(console) for console in (first, second)] == [200, 200]
        browser.cookies.clear()
        await browser.get(f"{second.base}/", params={"token": second.console.doors.token})
        assert [await name_at(console) for console in (first, second)] == [401, 200]
