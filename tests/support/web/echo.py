"""A web server that returns the request, unless its path requests something else."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.web.serving import serving


@dataclass
class EchoServer:
    """`/status/418` returns that status, `/to?...` redirects, `/raw?...` returns that text, `/hang` never answers."""

    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def echo_server() -> Generator[EchoServer]:
    """Serve on a port of this machine."""
    server = EchoServer()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            asked = {
                "method": self.command,
                "path": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "body": self.rfile.read(length).decode(),
            }
            server.requests.append(asked)
            where, _, rest = self.path.partition("?")
            if where == "/hang":
                server.stop.wait(30)
            status = int(where.removeprefix("/status/")) if where.startswith("/status/") else 200
            self._send(302 if where == "/to" else status, rest if where in ("/raw", "/to") else json.dumps(asked))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            if status == 302:
                self.send_header("location", text)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    with serving(Handler) as server.port:
        try:
            yield server
        finally:
            server.stop.set()
