"""Servers that repeat confidential headers: model providers, GitHub, OPA, and the front door of an MCP server."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.values.planted import repeated_headers
from tests.support.web.serving import serving

FORBIDDEN = "tell_log"


@contextmanager
def indiscreet_server() -> Generator[tuple[str, list[str]]]:
    """Serve on a free port. Yield the address and the headers of each request."""
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """GitHub: an issue that repeats the headers, and a pull request that is refused with them."""
            self._answer(401 if "/pulls/" in self.path else 200, self._github())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "/v1/data/" in self.path:
                self._answer(200, {"result": _decision(asked["input"], repeated_headers(self.headers.items()))})
            else:
                self._answer(
                    401, {"error": {"type": "authentication_error", "message": repeated_headers(self.headers.items())}}
                )

        def _github(self) -> Any:
            repeated = repeated_headers(self.headers.items())
            if self.path.endswith("/comments") or "/comments?" in self.path:
                return []
            issue = {"number": 42, "title": repeated, "body": repeated, "state": "open", "user": {"login": "x"}}
            return {**issue, "message": repeated, "labels": [], "comments": 0, "created_at": "2026-01-01T00:00:00Z"}

        def _answer(self, status: int, body: Any) -> None:
            received.append(repeated_headers(self.headers.items()))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}", received


def _decision(asked: dict[str, Any], repeated: str) -> dict[str, Any]:
    is_denied = asked["action"] == "tool_call" and asked["tool"]["name"] == FORBIDDEN
    return {
        "decision": "deny" if is_denied else "allow",
        "reason": repeated,
        "policies": [repeated],
        "version": repeated,
    }
