"""Errors after an incomplete answer name the received status. Requests that were never sent are marked."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from orga.activities.ports import Acted, Tool
from tests.support.tools.calls import failure
from tests.support.tools.manifests import a_manifest_tool
from tests.support.web.raw import answer, raw_http

PAY = """
name = "pay"
description = "Pay."
effect = "irreversible"
timeout_s = 30
[http]
method = "POST"
url = "HERE"
"""
CUT = b"content-length: 900\r\n\r\n{"


def paying(root: Path, url: str, method: str = "POST") -> Tool:
    return a_manifest_tool(root, PAY.replace("HERE", url).replace("POST", method), allow_hosts=["127.0.0.1"])


def paying_soon(root: Path, url: str) -> Tool:
    """Return the tool with a time limit that passes during the test."""
    return a_manifest_tool(root, PAY.replace("HERE", url).replace("= 30", "= 0.5"), allow_hosts=["127.0.0.1"])


@asynccontextmanager
async def saying(sent: bytes) -> AsyncGenerator[str]:
    """Run a server that sends only these bytes and keeps the connection open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await reader.read()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("sent", "kind", "retryable", "acted"),
    [
        pytest.param(b"HTTP/1.1 401 No\r\n" + CUT, "Http401", False, "maybe", id="an incomplete refusal"),
        pytest.param(b"HTTP/1.1 503 Busy\r\n" + CUT, "Http503", True, "maybe", id="an incomplete server error"),
        pytest.param(
            answer("502 Bad", b"\x1f\x8bno", "content-encoding: gzip"), "Http502", True, "maybe", id="damaged"
        ),
        pytest.param(answer("429 Slow", b"x", "content-encoding: br"), "Http429", True, "no", id="another encoding"),
    ],
)
async def test_the_status_is_reported_although_the_body_is_unreadable(
    tmp_path: Path, sent: bytes, kind: str, retryable: bool, acted: Acted
) -> None:
    async with raw_http({"": sent}) as (url, _):
        error = await failure(paying(tmp_path, f"{url}/"))
    assert (error.kind, error.retryable, error.acted) == (kind, retryable, acted)
    assert f" answered {kind[-3:]} " in str(error)


async def test_the_status_is_reported_although_the_body_never_arrives(tmp_path: Path) -> None:
    async with saying(b"HTTP/1.1 429 Too Many Requests\r\n" + CUT) as place:
        error = await failure(paying_soon(tmp_path, f"http://{place}"))
    assert (error.kind, "429 Too Many Requests" in str(error)) == ("TimeLimit", True)


async def test_a_failed_connection_has_not_acted(tmp_path: Path) -> None:
    """A full accept queue drops the next connection, as a firewall does."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        error = await failure(paying_soon(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}"))
    assert (error.kind, error.acted, "no connection" in str(error)) == ("ConnectionFailed", "no", True)


async def test_a_failed_tls_handshake_has_not_acted(tmp_path: Path) -> None:
    async with saying(answer("200 OK")) as place:
        error = await failure(paying(tmp_path, f"https://{place}"))
    assert (error.kind, error.acted) == ("ConnectionFailed", "no")


async def test_a_silent_server_may_have_acted(tmp_path: Path) -> None:
    async with saying(b"") as place:
        error = await failure(paying_soon(tmp_path, f"http://{place}"))
    assert (error.kind, error.acted) == ("TimeLimit", None)


@pytest.mark.parametrize("location", ["http://[bad", "https://host:99999/", "//", "\\x00", "http://a" + "b" * 70_000])
async def test_an_invalid_redirect_comes_after_the_request(tmp_path: Path, location: str) -> None:
    async with raw_http({"": answer("302 Found", b"", f"location: {location}")}) as (url, _):
        assert (await failure(paying(tmp_path, f"{url}/", "GET"))).acted == "maybe"


async def test_an_address_that_is_too_long_is_an_invalid_argument(tmp_path: Path) -> None:
    declared = 'arguments.tags = { type = "array", items = { type = "string" } }\n[http]'
    text = PAY.replace("[http]", declared) + 'query.tags = "{tags}"'
    tool = a_manifest_tool(tmp_path, text.replace("HERE", "http://127.0.0.1:9"), allow_hosts=["127.0.0.1"])
    error = await failure(tool, tags=["a" * 4_000] * 50)
    assert (error.kind, error.retryable, error.acted) == ("InvalidArguments", False, "no")
