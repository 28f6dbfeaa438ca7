"""A web server in this process, on a free port of the loopback, that logs nothing."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

POLL_S = 0.02
"""Seconds after which a server notices its shutdown. The default is half a second."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Generator[int]:
    """Serve, and yield the port. A request that is held does not delay the end."""
    quiet = type("Quiet", (handler,), {"log_message": _say_nothing})
    with ThreadingHTTPServer(("127.0.0.1", 0), quiet) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _say_nothing(*reported: object) -> None:
    pass
