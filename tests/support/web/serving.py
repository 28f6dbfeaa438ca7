"""A web server in this process, on a free port of the loopback, that logs nothing."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

POLL_S = 0.02
"""How soon a server notices that it shall end; half a second, unless it is told."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Generator[int]:
    """Serve, and yield the port; a request that is held does not hold up the end."""
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


def _say_nothing(*told: object) -> None:
    pass
