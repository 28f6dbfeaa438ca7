"""An MCP server (2025-11-25, streamable HTTP) that does what no server should, in a thread of the test."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.mcp.floods import flood
from tests.support.web.serving import serving

SESSION = "Mcp-Session-Id"
EVENTS = "text/event-stream"


@dataclass
class Hostile:
    """A hostile server: its reaction to a call, and the requests that it got."""

    url: str = ""
    answer: str = "result"
    """To the next calls: `result`, `lost` (its sessions are over), `unsent`, `terminated`, `half`, `latin`, and
    these two with ` event`."""
    sessions: int = 1
    calls: int = 0
    """Number of calls that were carried out."""
    streams: int = 0
    """How often its own stream was opened. The stream ends at once, and asks to be reopened at once."""
    flood: str = ""
    """The kind of notifications on its own stream."""
    methods: list[str] = field(default_factory=list[str])


@contextmanager
def hostile_http() -> Generator[Hostile]:
    """Run a server on a free port."""
    state = Hostile()

    class Handler(_Handler):
        hostile = state

    with serving(Handler) as port:
        state.url = f"http://127.0.0.1:{port}/mcp"
        yield state


def _events(messages: list[str]) -> bytes:
    return "".join(f"event: message\ndata: {message}\n\n" for message in messages).encode()


class _Handler(BaseHTTPRequestHandler):
    hostile: Hostile
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Open a stream that ends at once."""
        self.hostile.streams += 1
        if self.hostile.flood:
            return self._send(200, _events(flood(self.hostile.flood)), EVENTS)
        return self._send(200, b"retry: 0\nid: 1\ndata:\n\n", EVENTS)

    def do_DELETE(self) -> None:
        """End a session."""
        self._send(200, b"{}")

    def do_POST(self) -> None:
        """Answer a message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.hostile.methods.append(message["method"])
        if "id" not in message:
            return self._send(202, b"")
        if message["method"] != "initialize" and self.headers[SESSION] != str(self.hostile.sessions):
            return self._error(None, -32001, "Session not found", 404)
        match message["method"]:
            case "initialize":
                info = {"name": "hostile", "version": "1"}
                offers: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                self._result(message["id"], {**offers, "serverInfo": info})
            case "tools/list":
                self._result(message["id"], {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                self.hostile.calls += 1
                self._called(message["id"], message["params"].get("arguments", {}).get("answer", self.hostile.answer))
            case _:
                self._error(message["id"], -32601, "no such method", 404)
        return None

    def _called(self, ident: Any, answer: str) -> None:
        result: dict[str, Any] = {"content": [{"type": "text", "text": "done \ud83d"}]}
        match answer.split():
            case [status] if status.isdecimal():
                self._send(int(status), b"so it is", "text/plain")
            case ["no", "json"]:
                self._send(200, b"{")
            case ["scope", kind]:
                self.send_response(403)
                self.send_header("WWW-Authenticate", 'Bearer error="insufficient_scope", scope="repo admin"')
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")
            case [status, "json"]:
                self._send(int(status), b'{"error": "so it is"}')
            case [status, "error", code]:
                self._error(ident, int(code), "so it is", int(status))
            case [status, "cut"]:
                self.send_response(int(status))
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "900")
                self.end_headers()
                self.wfile.write(b"{")
                self.close_connection = True
            case ["events", "end"]:
                self._send(200, b": working\n\n", EVENTS)
            case ["error", code]:
                self._error(ident, int(code), "so it is")
            case ["html"]:
                self._send(200, b"<html>", "text/html")
            case ["no", "result"]:
                self._result(ident, {"content": 1})
            case ["is_error"]:
                self._result(ident, {**result, "isError": True})
            case ["hang", "up"]:
                self.close_connection = True
            case ["unsent"]:
                self._error(ident, -32098, "no connection")
            case ["flood", kind]:
                result = {"content": [{"type": "text", "text": "after the flood"}]}
                last = json.dumps({"jsonrpc": "2.0", "id": ident, "result": result})
                self._send(200, _events([*flood(kind), last]), EVENTS)
            case ["parts", kind]:
                many: dict[str, Any] = {"content": [], "structuredContent": {"a": [{"b": 0}] * 60_000}}
                if kind == "body":
                    return self._result(ident, many)
                self._send(200, _events([json.dumps({"jsonrpc": "2.0", "id": ident, "result": many})]), EVENTS)
            case ["terminated"]:
                self._error(ident, -32600, "Session terminated")
            case ["half"]:
                self._result(ident, result)
            case ["half", "event"]:
                data = json.dumps({"jsonrpc": "2.0", "id": ident, "result": result})
                self._send(200, f"event: message\ndata: {data}\n\n".encode(), EVENTS)
            case ["latin", *event]:
                result = {"content": [{"type": "text", "text": "done \xe9"}]}
                data = json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}, ensure_ascii=False)
                sent = f"id: 7\r\nevent: message\r\ndata: {data}\r\n\r\n" if event else data
                self._send(200, sent.encode("latin-1"), EVENTS if event else "application/json")
            case _:
                self._result(ident, {"content": [{"type": "text", "text": "done"}]})
        return None

    def _result(self, ident: Any, result: Any) -> None:
        self._send(200, json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}).encode())

    def _error(self, ident: Any, code: int, text: str, status: int = 200) -> None:
        error = {"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": text}}
        self._send(status, json.dumps(error).encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header(SESSION, str(self.hostile.sessions))
        self.end_headers()
        self.wfile.write(body)
