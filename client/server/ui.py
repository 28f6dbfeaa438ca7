"""The Temporal UI of the embedded server, for people at this machine but not for web pages.

A web page can send requests to any port of this machine. If it also gives this machine a name of its own (DNS
rebinding), it can read the answers. Temporal's UI answers every `Host`, so the embedded server runs without that UI.
Three parts replace it:

| part | answers | why a page gets nowhere |
| --- | --- | --- |
| this module | the browser of a person | it checks `Host`, `Origin` and `Sec-Fetch-Site` |
| the server's HTTP API | this module | it answers one `Host` only, a random one |
| a second, empty server | this module | its UI serves the same pages, and it holds no runs |

The second server starts when somebody first opens the UI, and ends when nobody has used it for a while.
"""

import asyncio
import re
import secrets
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from email.message import Message
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from time import monotonic, sleep

from orga.client.server.port_numbers import HOST, free_port

OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
"""Names that no page can redirect. The port does not matter, because it may be forwarded."""

API = "/api/v1/"
SETTINGS = "/api/v1/settings"
"""Settings of the UI itself, which the server's API does not have."""

JSON = "application/json+no-payload-shorthand"
"""The encoding of the API that the UI reads."""

MAX_BODY_BYTES = 4_000_000
"""The limit of the server's API."""

ANSWER_TIMEOUT_S = 150.0
"""Seconds, longer than the server holds a poll."""

HEALTH_TIMEOUT_S = 5.0
"""Seconds for the answer about the server's health."""

PAGES_TIMEOUT_S = 30.0
PAGES_IDLE_S = 600.0

UNTIL_CLOSED = '"$@" & read -r _; kill -9 $!; wait'
"""Runs a command until its standard input closes. That happens however the supervisor dies."""

_HOP_BY_HOP_HEADERS = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host"})


class Api:
    """The HTTP API of a server that is about to start. It answers only us."""

    def __init__(self) -> None:
        self.port = free_port()
        self.host = _unknown_host()

    def flags(self) -> list[str]:
        return ["--http-port", str(self.port), *_restricting_flags(self.host)]

    def is_closed(self) -> bool:
        """Return whether the API refuses any other `Host`. Old servers do not. Raise OSError if it does not answer."""
        connection = HTTPConnection(HOST, self.port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", f"{API}namespaces")
            return connection.getresponse().status == 403
        finally:
            connection.close()

    def is_damaged(self) -> bool:
        """Return whether the server can no longer read its database. Raise OSError if it does not answer.

        If a client cancels a request at a bad moment, SQLite refuses all later requests as "interrupted" (server 1.29).
        """
        connection = HTTPConnection(HOST, self.port, timeout=HEALTH_TIMEOUT_S)
        try:
            connection.request("GET", f"{API}namespaces/default", headers={"Host": self.host})
            response = connection.getresponse()
            is_error = response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            return is_error and b"interrupted" in response.read(MAX_BODY_BYTES)
        except HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()


def _unknown_host() -> str:
    return f"{secrets.token_hex(16)}.invalid"


def _restricting_flags(host: str) -> list[str]:
    """Return the flags of a server whose HTTP API answers only this `Host`.

    Nexus is disabled because its routes do not check `Host`.
    """
    settings = f'frontend.httpAllowedHosts=["{host}"]', "system.enableNexus=false"
    return [flag for setting in settings for flag in ("--dynamic-config-value", setting)]


def refusal_reason(method: str, headers: Message) -> str:
    """Return why a request is refused, or "" if a person or the UI itself has sent it.

    The browser sets the three headers that decide, and no script of a page can change them.
    """
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1 or not OWN_HOST.fullmatch(hosts[0]):
        return "Host: open the Temporal UI as http://127.0.0.1:PORT or http://localhost:PORT"
    origin = headers.get("Origin")
    if origin is None and method not in {"GET", "HEAD"}:
        return "Origin: a request that changes something has to name the Temporal UI as its origin"
    if origin is not None and origin != f"http://{hosts[0]}":
        return "Origin: the Temporal UI answers its own pages only"
    navigates = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == ("navigate", "document")
    is_link = method == "GET" and navigates  # a person follows a link on another page; a frame there does not count
    if headers.get("Sec-Fetch-Site", "none") not in {"same-origin", "none"} and not is_link:
        return "Sec-Fetch-Site: the Temporal UI answers its own pages only"
    return ""


class Pages:
    """The pages of the UI, from the empty server."""

    def __init__(self, executable: str) -> None:
        self._executable = executable
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._lock = threading.Lock()
        self._idle_timer: threading.Timer | None = None

    def serving_port(self) -> int:
        """Return the port of the pages. If necessary, start their server. Raise OSError if that fails."""
        with self._lock:
            if self._process is None or not _is_answering(self._port):
                self._end()
                self._start()
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._idle_timer = threading.Timer(PAGES_IDLE_S, self.stop)
            self._idle_timer.daemon = True
            self._idle_timer.start()
            return self._port

    def stop(self) -> None:
        with self._lock:
            self._end()

    def _start(self) -> None:
        port = free_port()
        ports = ["--port", str(free_port()), "--ui-port", str(port)]
        flags = ["--ip", HOST, *ports, "--log-level", "error", *_restricting_flags(_unknown_host())]
        command = ["/bin/sh", "-c", UNTIL_CLOSED, "sh", self._executable, "server", "start-dev", *flags]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self._port = port
        deadline = monotonic() + PAGES_TIMEOUT_S
        while not _is_answering(port):
            if monotonic() > deadline:
                raise TimeoutError(f"no page within {PAGES_TIMEOUT_S:g} s")
            sleep(0.05)

    def _end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def _is_answering(port: int) -> bool:
    connection = HTTPConnection(HOST, port, timeout=PAGES_TIMEOUT_S)
    with suppress(OSError):
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    return False


@contextmanager
def serve_ui(port: int, api: Api, executable: str) -> Generator[None]:
    """Serve the UI at `port` until the block ends. Raise OSError if the port is taken."""
    pages = Pages(executable)

    class Guard(_GuardHandler):
        upstream_api, upstream_pages = api, pages

    loop = asyncio.get_running_loop()
    with _UiServer((HOST, port), Guard) as server:
        loop.add_reader(server, server.handle_request)
        try:
            yield
        finally:
            loop.remove_reader(server)
            pages.stop()


class _UiServer(ThreadingTCPServer):
    """A plain server, because `HTTPServer` looks up the name of its address first and may wait for that."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64
    timeout = 0
    """Seconds. `handle_request` need not wait, because it is called only when a request has arrived."""


class _GuardHandler(BaseHTTPRequestHandler):
    """Forwards requests that are not refused. A connection carries one request, so none can hide after another."""

    protocol_version = "HTTP/1.1"
    timeout = 30.0
    """Seconds for a request to arrive."""
    upstream_api: Api
    upstream_pages: Pages

    def _answer(self) -> None:
        self.close_connection = True
        if why := refusal_reason(self.command, self.headers):
            return self._send_text(403, why)
        length = self.headers.get("Content-Length", "0")
        is_length_allowed = length.isdecimal() and int(length) <= MAX_BODY_BYTES
        if not is_length_allowed or "Transfer-Encoding" in self.headers:
            return self._send_text(400, f"Content-Length: at most {MAX_BODY_BYTES} bytes, not in chunks")
        try:
            with self._upstream(self.rfile.read(int(length))) as response:
                self._send(response)
        except (OSError, HTTPException, ValueError) as error:
            self._send_text(502, f"the Temporal server does not answer ({error}); reload the page")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    @property
    def _is_api(self) -> bool:
        return self.path.startswith(API) and self.path.partition("?")[0] != SETTINGS

    @contextmanager
    def _upstream(self, body: bytes) -> Generator[HTTPResponse]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP_HEADERS}
        if self._is_api:
            headers |= {"Host": self.upstream_api.host, "Accept": JSON, "Content-Type": JSON}
            port = self.upstream_api.port
        else:
            port = self.upstream_pages.serving_port()
        connection = HTTPConnection(HOST, port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request(self.command, self.path, body or None, headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def _send(self, response: HTTPResponse) -> None:
        self.send_response_only(response.status)
        left_out = _HOP_BY_HOP_HEADERS | {"content-type"} if self._is_api else _HOP_BY_HOP_HEADERS
        for name, value in response.getheaders():
            if name.lower() not in left_out:
                self.send_header(name, value)
        self._end_headers("application/json" if self._is_api else None)  # the pages have their own type
        with suppress(OSError):  # the browser has gone, or the answer ends here
            while piece := response.read1(65_536):
                self.wfile.write(piece)

    def _send_text(self, status: int, text: str) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(text) + 1))
        self._end_headers("text/plain; charset=utf-8")
        with suppress(OSError):  # the browser has gone
            self.wfile.write(f"{text}\n".encode())

    def _end_headers(self, content_type: str | None) -> None:
        if content_type is not None:
            self.send_header("Content-Type", content_type)
            self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Write nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""
