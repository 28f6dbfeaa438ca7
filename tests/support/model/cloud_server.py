"""A scripted server of Bedrock's ConverseStream and of Gemini's streamGenerateContent, over real sockets."""

import asyncio
import json
import struct
import time
import zlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Scripted:
    """One answer."""

    chunks: Sequence[bytes] = ()
    status: int = 200
    headers: tuple[str, ...] = ()
    silent_before: bool = False
    """Nothing is sent until the client goes."""
    silent_after: bool = False
    """Nothing more is sent after the chunks until the client goes."""
    cut: bool = False
    """The connection breaks off after the chunks. Otherwise the body ends as HTTP says."""


@dataclass
class CloudServer:
    answers: list[Scripted]
    port: int = 0
    paths: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    waits: asyncio.Event = field(default_factory=asyncio.Event)
    """Set as soon as an answer is silent."""
    closed_at: asyncio.Future[float] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """The time at which a client first went while an answer was silent."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin(self, answers: Iterable[Scripted]) -> None:
        """Forget what was asked, and answer with these from now on."""
        self.answers[:] = answers
        for asked in (self.paths, self.headers, self.bodies):
            asked.clear()
        self.closed_at = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if first.startswith("GET") or headers.get("content-type", "").startswith("application/json"):
            self.paths.append(first.split(" ")[1])
            self.headers.append(headers)
            self.bodies.append(json.loads(body or b"{}"))
            answer = self.answers.pop(0)
        else:  # Google's server of tokens
            token = {"access_token": "fresh", "expires_in": 3600, "token_type": "Bearer"}
            answer = Scripted([json.dumps(token).encode()], headers=("content-type: application/json",))
        if answer.silent_before:
            await self._wait(reader)
            return
        head = [f"HTTP/1.1 {answer.status} X", "transfer-encoding: chunked", "connection: close", *answer.headers]
        writer.write("\r\n".join([*head, "", ""]).encode())
        for chunk in answer.chunks:
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        if answer.silent_after:
            await self._wait(reader)
        elif not answer.cut:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    async def _wait(self, reader: asyncio.StreamReader) -> None:
        self.waits.set()
        await reader.read()
        if not self.closed_at.done():
            self.closed_at.set_result(time.monotonic())


@asynccontextmanager
async def cloud_server(*answers: Scripted) -> AsyncGenerator[CloudServer]:
    served = CloudServer(list(answers))
    async with await asyncio.start_server(served.serve, "127.0.0.1", 0) as running:
        served.port = running.sockets[0].getsockname()[1]
        yield served


def aws_event(kind: str, payload: dict[str, Any], message: str = "event") -> bytes:
    """Return one message of Amazon's event stream: prelude, headers, payload, each with its checksum."""
    names = {":message-type": message, f":{message}-type": kind, ":content-type": "application/json"}
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in names.items()
    )
    content = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(content), len(headers))
    prelude += struct.pack("!I", zlib.crc32(prelude))
    return (whole := prelude + headers + content) + struct.pack("!I", zlib.crc32(whole))


def bedrock_events(*blocks: list[dict[str, Any]], stop: str = "end_turn", usage: Any = None) -> list[bytes]:
    """Return a whole reply. Each block is its start, if any, and its deltas."""
    events = [aws_event("messageStart", {"role": "assistant"})]
    for index, block in enumerate(blocks):
        events += block_events(index, block)
    counts = usage or {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    return [
        *events,
        aws_event("messageStop", {"stopReason": stop}),
        aws_event("metadata", {"usage": counts, "metrics": {"latencyMs": 1}}),
    ]


def block_events(index: int, block: Iterable[dict[str, Any]]) -> list[bytes]:
    place = {"contentBlockIndex": index}
    events = [
        aws_event("contentBlockStart" if "start" in each else "contentBlockDelta", each | place) for each in block
    ]
    return [*events, aws_event("contentBlockStop", place)]


def text_block(*pieces: str) -> list[dict[str, Any]]:
    return [{"delta": {"text": piece}} for piece in pieces]


def thought_block(text: str, signature: str) -> list[dict[str, Any]]:
    return [
        {"delta": {"reasoningContent": {"text": text}}},
        {"delta": {"reasoningContent": {"signature": signature}}},
    ]


def call_block(call_id: str, name: str, *pieces: str) -> list[dict[str, Any]]:
    start = {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}
    return [start, *({"delta": {"toolUse": {"input": piece}}} for piece in pieces)]


def bedrock(*blocks: list[dict[str, Any]], **fields: Any) -> Scripted:
    return Scripted(bedrock_events(*blocks, **fields), headers=BEDROCK_HEADERS)


BEDROCK_HEADERS = ("content-type: application/vnd.amazon.eventstream",)
GEMINI_HEADERS = ("content-type: text/event-stream",)


def gemini_chunk(*parts: dict[str, Any], finish: str = "", usage: Any = None, **fields: Any) -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    chunk = {"candidates": [candidate], "modelVersion": fields.pop("model", "gemini-3-pro-preview")} | fields
    if usage:
        chunk["usageMetadata"] = usage
    return f"data: {json.dumps(chunk)}\r\n\r\n".encode()


def gemini(*chunks: bytes) -> Scripted:
    return Scripted(chunks, headers=GEMINI_HEADERS)


def refusal(status: int, body: dict[str, Any], *headers: str) -> Scripted:
    return Scripted([json.dumps(body).encode()], status=status, headers=("content-type: application/json", *headers))
