"""The socket of a model: closed at once on cancellation, and reused after a complete reply."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.ports import ModelError, ModelProvider
from orga.workflows.phases.control.run import CANCEL_GRACE_S
from orga.workflows.types.models.endpoints import EndpointSettings
from orga.workflows.types.models.providers import Api
from tests.support.hold import PATIENCE_S
from tests.support.model.named import Named
from tests.support.model.providers import a_request
from tests.support.runs.loop import a_loop

AT_ONCE_S = 5.0
"""Seconds. Far less than a connection stays open by itself. An idle machine takes some milliseconds."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = b'data: {"choices": [{"delta": {"reasoning": "hm", "content": "hi"}}]}\n\n'
PIECES: dict[Api, bytes] = {
    "chat": PIECE,
    "responses": b'data: {"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": "hi"}\n\n',
    "messages": b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}\n\n',
}
LAST = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Wiretap:
    """The traffic that a server received."""

    connections: int = 0
    requests: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


def chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def served(script: Script, api: Api = "chat") -> AsyncGenerator[tuple[ModelProvider, Wiretap]]:
    """Serve every request with `script` on real sockets, and record the end of the connection."""
    seen = Wiretap()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.partition(b":")[2]))
                seen.requests += 1
                seen.asked.set()
                await script(writer)
        seen.ended.set()
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = EndpointSettings(api=api, base_url=f"http://127.0.0.1:{port}/v1")
    registry = ModelRegistry({}, endpoints={"house": place})
    try:
        yield registry.resolve("house:m")[0], seen
    finally:
        await registry.close()
        server.close()


async def silence(writer: asyncio.StreamWriter) -> None:
    """Never answer."""


async def one_piece(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunked(PIECE))
    await writer.drain()


def piece_by(api: Api) -> Script:
    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunked(PIECES[api]))
        await writer.drain()

    return script


async def whole(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunked(PIECE) + chunked(LAST) + b"0\r\n\r\n")
    await writer.drain()


async def open_ended(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunked(PIECE) + chunked(LAST))
    await writer.drain()


async def hung_up(writer: asyncio.StreamWriter) -> None:
    await one_piece(writer)
    writer.close()


@pytest.mark.parametrize("api", list(PIECES))
@pytest.mark.parametrize(
    "is_begun", [pytest.param(False, id="before the answer"), pytest.param(True, id="in mid-stream")]
)
async def test_cancellation_closes_the_socket_at_once(api: Api, is_begun: bool) -> None:
    async with served(piece_by(api) if is_begun else silence, api) as (provider, seen):
        streaming = asyncio.Event()
        call = asyncio.create_task(provider.complete(a_request(), lambda text: streaming.set()))
        await asyncio.wait_for((streaming if is_begun else seen.asked).wait(), PATIENCE_S)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(seen.ended.wait(), AT_ONCE_S)


async def test_a_connection_serves_one_reply_after_another() -> None:
    async with served(whole) as (provider, seen):
        for _ in range(3):
            assert (await provider.complete(a_request(), lambda text: None)).text == "hi"
        assert (seen.connections, seen.requests) == (1, 3)


async def test_a_server_that_never_ends_its_response_costs_only_a_moment() -> None:
    """The reply is complete at its end mark. Waiting for the end of the connection would cost two minutes."""
    async with served(open_ended) as (provider, seen):
        reply = await asyncio.wait_for(provider.complete(a_request(), lambda text: None), PATIENCE_S)
        assert reply.text == "hi"
        await asyncio.wait_for(seen.ended.wait(), AT_ONCE_S)


async def test_a_server_that_hangs_up_is_a_bad_stream() -> None:
    async with served(hung_up) as (provider, _):
        with pytest.raises(ModelError) as caught:
            await provider.complete(a_request(), lambda text: None)
        assert (caught.value.kind, caught.value.retryable) == ("BadStream", True)


async def test_an_unreachable_server_is_a_connection_failure() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    registry = ModelRegistry({"OLLAMA_HOST": f"127.0.0.1:{port}"})
    with pytest.raises(ModelError, match=r"^ollama can't be reached") as caught:
        await registry.resolve("ollama:m")[0].complete(a_request(), lambda text: None)
    await registry.close()
    assert caught.value.kind == "ConnectionFailed"


@pytest.mark.parametrize(
    "script", [pytest.param(silence, id="before the answer"), pytest.param(one_piece, id="in mid-stream")]
)
async def test_an_abort_of_a_run_closes_the_socket_before_the_run_gives_up_the_call(
    client: Client, script: Script
) -> None:
    """This goes through the server and the heartbeat. It takes half a second on an idle machine."""
    async with served(script) as (provider, seen), a_loop(client, Named(provider, "m")) as loop:
        handle = await loop.start("wait")
        await asyncio.wait_for(seen.asked.wait(), PATIENCE_S)
        await handle.signal("abort", "not needed")
        await asyncio.wait_for(seen.ended.wait(), CANCEL_GRACE_S)
        ran = await loop.ended(handle)

    assert ran.result.termination.model_dump() == {"reason": "aborted", "detail": "not needed"}


async def test_partial_text_is_seen_while_the_model_writes(client: Client) -> None:
    async with served(one_piece) as (provider, seen), a_loop(client, Named(provider, "m")) as loop:
        handle = await loop.start("wait")
        await asyncio.wait_for(seen.asked.wait(), PATIENCE_S)
        details = await _heartbeat(handle)
        await handle.signal("abort", "seen enough")
        await loop.ended(handle)

    assert details == {"text": "hi", "text_length": 2, "thinking": "hm", "thinking_length": 2}


async def _heartbeat(handle: WorkflowHandle[Any, Any]) -> Any:
    """Wait for the details of a heartbeat that contains text."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for pending in (await handle.describe()).raw_description.pending_activities:
                for payload in pending.heartbeat_details.payloads:
                    if (details := json.loads(payload.data))["text_length"]:
                        return details
            await asyncio.sleep(0.05)
