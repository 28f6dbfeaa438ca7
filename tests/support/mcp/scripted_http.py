"""A small MCP server over HTTP, in the test's own loop. A test decides the outcome of each request."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

Script = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Takes a method and its parameters. Returns the result, or None to break the connection."""

TOOL: dict[str, Any] = {"name": "act", "inputSchema": {"type": "object", "properties": {}}}


class ScriptedServer:
    """Answers as its script defines. `changed` notifies the worker of a new list."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.deletes_hang = False
        self.url = ""
        self._notices: asyncio.StreamWriter | None = None

    def changed(self) -> None:
        """Notify the client on its notice stream."""
        assert self._notices is not None
        notice = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        self._notices.write(f"event: message\ndata: {notice}\n\n".encode())

    @property
    def has_notices(self) -> bool:
        """True if a client listens for notices."""
        return self._notices is not None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._exchange(reader, writer):
                await writer.drain()
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        lengths = [int(line.partition(":")[2]) for line in head.splitlines() if line.startswith("content-length:")]
        body = await reader.readexactly(sum(lengths))
        if head.startswith("get"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            self._notices = writer
            await reader.read()
            return False
        if head.startswith("delete"):
            while self.deletes_hang:
                await asyncio.sleep(0.05)
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            return True
        message: dict[str, Any] = json.loads(body)
        if "id" not in message:
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
            return True
        answer = await self._answer(message)
        if answer is None:
            return False
        data = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode()
        session = "mcp-session-id: one\r\n" if message["method"] == "initialize" else ""
        start = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{session}content-length: {len(data)}\r\n\r\n"
        writer.write(start.encode() + data)
        return True

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        match message["method"]:
            case "initialize":
                about = {"name": "scripted", "version": "1"}
                capabilities = {"tools": {"listChanged": True}}
                return {"result": {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": about}}
            case "tools/list" | "tools/call" as method:
                return await self.script(method, message.get("params") or {})
            case _:
                return {"error": {"code": -32601, "message": "no such method"}}


@asynccontextmanager
async def scripted_http(script: Script) -> AsyncGenerator[ScriptedServer]:
    """Run one server."""
    scripted = ScriptedServer(script)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    scripted.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield scripted
    finally:
        scripted.deletes_hang = False
        server.close()


def tool_list_reply(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"result": {"tools": list(tools) or [TOOL]}}


def call_reply(text: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}]}}
