"""HTTP providers that refuse every request with the error of their protocol, and count the requests."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.web.serving import serving

NO_QUOTA = {"error": {"message": "You exceeded your current quota", "type": "insufficient_quota"}}
NO_CREDIT = {"type": "error", "error": {"type": "billing_error", "message": "Your credit is used up"}}


@dataclass
class RefusingServer:
    """An HTTP server that refuses every request, and keeps the requests."""

    status: int
    body: dict[str, Any]
    asked: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        """Base URL for the config."""
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def refusing_server(status: int, body: dict[str, Any]) -> Generator[RefusingServer]:
    """Serve on a free port."""
    server = RefusingServer(status, body)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            server.asked += 1
            answer = json.dumps(server.body).encode()
            self.send_response(server.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with serving(Handler) as server.port:
        yield server
