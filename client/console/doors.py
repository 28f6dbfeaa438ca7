"""Decides who may enter the console, and who may do what.

There are three ways in, and each gives a `Visitor`:

- On loopback, the printed address has the token of the person who started the console.
- A file has other names, with the hashes of their tokens (`TokenFile`).
- A trusted proxy names the visitor in headers.

A token in an address becomes a session cookie.
"""

import hmac
import html
import json
import logging
import os
import secrets
from collections import defaultdict, deque
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_address, ip_network
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple, cast

from pydantic import Field, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orga.activities.media import MAX_FRONTEND_MESSAGE_BYTES
from orga.client.console.problems import Problem, handle_problem, problem_answer
from orga.client.errors import OrgaError
from orga.workflows.types.control import MAX_SENDER_CHARS
from orga.workflows.types.record import CheckedInput, validation_problems
from orga.workflows.types.text import clean_text, one_line

Role = Literal["viewer", "operator", "approver", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "approver", "admin")
"""Each role has the rights of those before it."""
_TOKEN_BYTES = 32

_FOR_OTHERS = 0o077
"""The bits of a file's mode that let anybody but its owner use it."""


def roles_up_to(role: Role) -> tuple[Role, ...]:
    return ROLES[: ROLES.index(role) + 1]


def _visitor_name(text: str) -> str:
    """Return a name on one line, as the journal shows it, or "" if nothing is left of it."""
    return one_line(clean_text(text), MAX_SENDER_CHARS)


@dataclass(frozen=True)
class Visitor:
    """The authenticated sender of a request."""

    name: str
    """The name that the journal has in `by`."""
    roles: tuple[Role, ...] = ROLES
    tenants: frozenset[str] | None = None
    """The tenants whose runs exist for the visitor. None means all runs."""

    @property
    def identity(self) -> tuple[str, ...]:
        """The name and the tenants, because several tenants may use the same name."""
        return self.name, *sorted(self.tenants or ())

    def may(self, role: Role) -> bool:
        return role in self.roles


class _TokenEntry(CheckedInput):
    name: str = Field(min_length=1, max_length=MAX_SENDER_CHARS)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The digest of the token. A token is random, so its digest does not reveal it."""
    role: Role = "viewer"
    tenants: tuple[str, ...] | None = None


class _TokenList(CheckedInput):
    tokens: tuple[_TokenEntry, ...] = ()


class TokenFile:
    """A file of names with hashed tokens. It is read again when it has changed, so removed tokens are not valid."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raise OrgaError if it cannot be read."""
        self._path = path
        self._version = (0, 0)
        """The file's last change and size when it was read. Two zeros if there was no file."""
        self._visitors: dict[str, Visitor] = {}
        self._refresh()

    def visitor(self, token: str) -> Visitor | None:
        """Return the visitor with this token, or None. While the file cannot be read, nobody may enter."""
        try:
            self._refresh()
        except OrgaError:
            return None
        return self._visitors.get(sha256(token.encode()).hexdigest())

    def add(self, name: str, role: Role, tenants: Sequence[str]) -> str:
        """Add a name and return its token, which is stored nowhere."""
        if _visitor_name(name) != name or not name:
            raise OrgaError(f"--add-token: {name!r} must be one line of at most {MAX_SENDER_CHARS} characters")
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        digest = sha256(token.encode()).hexdigest()
        entry = _TokenEntry(name=name, sha256=digest, role=role, tenants=tuple(tenants) or None)
        entries = (*_read(self._path).tokens, entry)
        _write_private(self._path, _TokenList(tokens=entries).model_dump_json(indent=1))
        return token

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_size)
        except OSError:
            version = (0, 0)
            self._visitors = {}
        if version != self._version:
            self._visitors = {entry.sha256: _visitor(entry) for entry in _read(self._path).tokens}
            self._version = version


def _visitor(entry: _TokenEntry) -> Visitor:
    tenants = None if entry.tenants is None else frozenset(entry.tenants)
    return Visitor(entry.name, roles_up_to(entry.role), tenants)


def _read(path: Path) -> _TokenList:
    try:
        text, mode = path.read_text(), path.stat().st_mode
    except FileNotFoundError:
        return _TokenList()
    except (OSError, UnicodeDecodeError) as error:
        raise OrgaError(f"--tokens: {path} cannot be read ({error})") from None
    if mode & _FOR_OTHERS:
        raise OrgaError(f"--tokens: others may read {path}. Run: chmod 600 {path}")
    try:
        return _TokenList.model_validate(json.loads(text), extra="forbid")
    except ValidationError as error:
        raise OrgaError(f"--tokens: {path}: {'; '.join(validation_problems(error))}") from None
    except ValueError:
        raise OrgaError(f"--tokens: {path} is no JSON. Make it with: orga console --add-token NAME") from None


def _write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner can read."""
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        new.replace(path)
    except OSError as error:
        raise OrgaError(f"{path} cannot be written: {error.strerror}. Name a file in a folder of yours") from None


def owner_token(path: Path) -> str:
    """Return the token of the person who starts the console. It is kept in a file, so open pages stay logged in."""
    if token := _kept_token(path):
        return token
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    _write_private(path, token)
    return token


def _kept_token(path: Path) -> str:
    """Return the token in a file that only its owner can use, or ""."""
    with suppress(OSError, UnicodeDecodeError):
        is_private = not path.stat().st_mode & _FOR_OTHERS
        return path.read_text().strip() if is_private else ""
    return ""


_COOKIE = "orga-console"

CSRF_HEADER = "x-orga-console"
"""A page of another origin cannot send this header without a permission that the console never gives."""
MAX_BODY_BYTES = 1_000_000
"""Bytes of a body without pictures and documents."""
API_PREFIX = "/api/"

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
        " form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""The headers of every answer. A header that the answer already has stays."""

_LOG = logging.getLogger(__name__)

_WINDOW_S = 60.0  # seconds for which writes are counted


def cookie_name(host: str, scheme: str = "http") -> str:
    """Return the name of the session cookie. It has the port, since a browser sends cookies to all ports of a host.

    With TLS it begins with `__Host-`, so that a page of another name of the same domain cannot set it.
    """
    name = f"__Host-{_COOKIE}" if scheme == "https" else _COOKIE
    port = host.rpartition(":")[2]
    return f"{name}-{port}" if port.isdecimal() else name


def private_name(token: str) -> str:
    """Return a host name of this machine that is derived from the token. Browsers resolve it by themselves.

    A browser sends cookies of `127.0.0.1` to servers on all ports, and so to those of other users of the machine.
    They do not know this name.
    """
    return f"orga-{sha256(token.encode()).hexdigest()[:16]}.localhost"


_OTHER_SITES = {"same-site", "cross-site"}
"""Values of `Sec-Fetch-Site` in requests of other pages. From response times, a page could guess which runs exist."""


class Limits(NamedTuple):
    """The numbers of writes that one name may make in a minute."""

    writes: int = 60
    starts: int = 20
    """Starts of runs, which are writes, too."""


class Proxy(NamedTuple):
    """A proxy that authenticates visitors and names them in headers."""

    address: str
    """The address or network that its requests come from."""

    def visitor(self, connection: HTTPConnection) -> Visitor | None:
        """Return the visitor that the proxy names. Headers from other addresses do not count."""
        try:
            if connection.client is None or ip_address(connection.client.host) not in ip_network(self.address):
                return None
        except ValueError:
            return None
        name = _visitor_name(connection.headers.get("x-forwarded-user", ""))
        if not name:
            return None
        groups = [group.strip() for group in connection.headers.get("x-forwarded-groups", "").split(",")]
        given_roles: list[Role] = [role for role in ROLES if f"orga:{role}" in groups]
        roles = roles_up_to(given_roles[-1]) if given_roles else ()
        tenants = frozenset(group.removeprefix("orga:tenant:") for group in groups if group.startswith("orga:tenant:"))
        return Visitor(name, roles, tenants or None)


class _Counts:
    """Counts what each name did in the last minute."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = defaultdict(deque)

    def add(self, name: str, most: int, what: str) -> None:
        now, times = monotonic(), self._times[name]
        while times and times[0] <= now - _WINDOW_S:
            times.popleft()
        if len(times) >= most:
            wait_s = max(int(times[0] + _WINDOW_S - now) + 1, 1)
            raise Problem(
                429, f"{name} has made {most} {what} in a minute. Try again in {wait_s} s", retry_after_s=wait_s
            )
        times.append(now)


@dataclass(frozen=True)
class Doors:
    """The console's own addresses, and the rules about who may enter and do what."""

    hosts: frozenset[str]
    """The accepted `Host` headers, such as `127.0.0.1:8642`."""
    owner: str
    """The name of the person who has started the console on loopback."""
    token: str = field(default="", repr=False)
    """The owner's token. Empty if the console does not listen on loopback."""
    read_only: bool = False
    scheme: str = "http"
    """The scheme that browsers see."""
    tokens: TokenFile | None = None
    proxy: Proxy | None = None
    limits: Limits = field(default_factory=Limits)
    _writes: _Counts = field(default_factory=_Counts, init=False, repr=False)
    _starts: _Counts = field(default_factory=_Counts, init=False, repr=False)

    def visitor(self, connection: HTTPConnection) -> Visitor | None:
        """Return the sender of a request, or None if the request does not prove one."""
        scheme, _, bearer = connection.headers.get("authorization", "").partition(" ")
        cookie = connection.cookies.get(cookie_name(connection.headers.get("host", ""), self.scheme), "")
        token = bearer.strip() if scheme.lower() == "bearer" else cookie
        if visitor := self.visitor_with(token):
            return visitor
        return self.proxy.visitor(connection) if self.proxy else None

    def visitor_with(self, token: str) -> Visitor | None:
        if not token:
            return None
        if self.token and hmac.compare_digest(token.encode(), self.token.encode()):
            return Visitor(self.owner)
        return self.tokens.visitor(token) if self.tokens else None

    def require(self, visitor: Visitor, role: Role, *, is_write: bool) -> None:
        """Raise Problem for a visitor without that role, or for a write while the console is read-only."""
        if is_write and self.read_only:
            raise Problem(403, "this console is read-only. Start one without --read-only to change something")
        if not visitor.may(role):
            own_roles = ", ".join(visitor.roles) or "none"
            raise Problem(403, f"this needs the role {role}, and {visitor.name} has {own_roles}")

    def count_write(self, visitor: Visitor, *, is_start: bool = False) -> None:
        """Count a write of a visitor. Raise Problem if the visitor writes too often."""
        self._writes.add(visitor.name, self.limits.writes, "writes")
        if is_start:
            self.count_start(visitor)

    def count_start(self, visitor: Visitor) -> None:
        """Count a run that a visitor starts. Raise Problem if the visitor starts too many."""
        self._starts.add(visitor.name, self.limits.starts, "starts")

    def is_own_request(self, headers: Headers) -> bool:
        """Return whether a request is for this console's address and does not come from another page."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        is_navigation = headers.get("sec-fetch-mode", "navigate") == "navigate"
        is_embedded = headers.get("sec-fetch-site") in _OTHER_SITES and not is_navigation
        has_own_origin = origin is None or origin.lower() in self.origins
        return host in self.hosts and has_own_origin and not is_embedded

    @property
    def origins(self) -> Set[str]:
        return {f"{self.scheme}://{host}" for host in self.hosts}


def visitor_of(request: Request) -> Visitor:
    return cast("Visitor", request.state.visitor)


class DoorKeeper:
    """ASGI middleware that lets in only requests of known visitors to the console's own addresses."""

    def __init__(self, app: ASGIApp, doors: Doors, media_paths: tuple[str, ...] = ()) -> None:
        """Wrap an application. Bodies at paths that begin with one of `media_paths` may contain pictures."""
        self._app, self._doors, self._media_paths = app, doors, media_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # policy violation: there are no web sockets
            return
        answer = _Answer(send)
        request = Request(scope)
        may_have_media = request.url.path.startswith(self._media_paths)
        max_bytes = MAX_FRONTEND_MESSAGE_BYTES if may_have_media else MAX_BODY_BYTES
        try:
            self._refuse_strange(request)
            token = request.query_params.get("token")
            if request.method == "GET" and token is not None:
                await self._entry(request, token)(scope, receive, answer.send)
            else:
                self._admit(request, max_bytes)
                await self._app(scope, _BoundedBody(receive, max_bytes).receive, answer.send)
        except Problem as problem:
            await problem_answer(request, problem)(scope, receive, answer.send)
        except Exception as error:
            _LOG.exception("the console failed to answer %s", request.method)
            if answer.has_begun:
                raise
            await (await handle_problem(request, error))(scope, receive, answer.send)

    def _refuse_strange(self, request: Request) -> None:
        """Raise Problem for a request that is ambiguous or not meant for this console."""
        if {"content-length", "transfer-encoding"} <= {*request.headers.keys()}:
            ambiguous = Problem(400, "a request has both Content-Length and Transfer-Encoding. Send one of them")
            ambiguous.headers["Connection"] = "close"  # a proxy may see the end of this request elsewhere
            raise ambiguous
        if not self._doors.is_own_request(request.headers):
            raise Problem(403, "the address or the page is not this console's own. Open the address that it printed")

    def _admit(self, request: Request, max_body_bytes: int) -> None:
        """Note the visitor of a request. Raise Problem for an unknown visitor, or a write that is not allowed."""
        visitor = self._doors.visitor(request)
        if visitor is None:
            raise Problem(401, "you are not logged in. Open the address that `orga console` printed, or send a token")
        if request.method not in {"GET", "HEAD", "OPTIONS"}:
            _check_write(request, max_body_bytes)
        request.scope.setdefault("state", {})["visitor"] = visitor

    def _entry(self, request: Request, token: str) -> Response:
        """Return the redirection to the same page without the token. The token becomes a cookie."""
        entering = self._doors.visitor_with(token)
        if entering is None:
            raise Problem(401, "the token is not valid. Open the address that `orga console` printed last")
        path = "/" + request.url.path.lstrip("/")
        site = request.headers.get("sec-fetch-site", "none")  # `none`: a person has typed or opened the address
        if site == "cross-site":
            # a browser sends no strict cookie after a link on another page, so our own page opens the address again
            return HTMLResponse(_SAME_ADDRESS_AGAIN.format(html.escape(f"{path}?{request.url.query}")))
        present = self._doors.visitor(request)
        present_name = present.name if present else entering.name
        if present_name != entering.name and site != "none":
            raise Problem(
                409,
                f"a page has sent you here to enter as {entering.name}, and you are {present_name} in this browser. "
                "If you want to, open the address yourself",
            )
        query = request.url.remove_query_params("token").query
        redirection = RedirectResponse(f"{path}?{query}" if query else path, 303)
        cookie = cookie_name(request.headers["host"], self._doors.scheme)
        redirection.set_cookie(cookie, token, httponly=True, samesite="strict", secure=self._doors.scheme == "https")
        return redirection


_SAME_ADDRESS_AGAIN = '<!doctype html><title>orga</title><meta http-equiv="refresh" content="0; url={}">'


def _check_write(request: Request, max_body_bytes: int) -> None:
    """Raise Problem for a write that a page of another origin could have sent, or whose body is too long."""
    has_bearer = request.headers.get("authorization", "").lower().startswith("bearer ")
    needs_header = request.url.path.startswith(API_PREFIX) or not has_bearer
    if needs_header and request.headers.get(CSRF_HEADER) != "1":
        raise Problem(403, "the header X-Orga-Console: 1 is missing. Send it with every request that writes")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "Content-Type: must be application/json")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > max_body_bytes:
        raise _too_long(max_body_bytes)


def _too_long(most: int) -> Problem:
    return Problem(413, f"body: must not be longer than {most:,} bytes")


class _BoundedBody:
    """A body that raises Problem once it is too long, even if the request does not state its length."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._size = receive, most, 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > self._most:
            raise _too_long(self._most)
        return message


class _Answer:
    """Sends an answer, and adds the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send, self.has_begun = send, False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)
