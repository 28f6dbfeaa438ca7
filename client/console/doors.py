"""Who may enter the console, and who may do what.

On loopback, the printed address has a token, which becomes a session cookie. So other users of the machine and other
web pages get nothing.
"""

import hmac
import secrets
from dataclasses import dataclass, field
from typing import Literal, cast

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from orga.client.console.problems import Problem, problem_response

Role = Literal["viewer", "operator", "approver", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "approver", "admin")
"""Each role has the rights of those before it."""

COOKIE = "orga-console"
CSRF_HEADER = "x-orga-console"
"""A page of another origin cannot send this header without a permission that the console never gives."""


@dataclass(frozen=True)
class Visitor:
    """The authenticated sender of a request."""

    name: str
    """What the journal has as `by`."""
    roles: tuple[Role, ...] = ROLES
    tenants: frozenset[str] | None = None
    """The tenants whose runs exist for the visitor. None means all runs."""

    def may(self, role: Role) -> bool:
        return role in self.roles


@dataclass(frozen=True)
class Doors:
    """The console's own addresses and its ways in."""

    hosts: frozenset[str]
    """The accepted `Host` headers, such as `127.0.0.1:8642`."""
    owner: str
    """The name of the person who has started the console on loopback."""
    read_only: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def visitor(self, connection: HTTPConnection) -> Visitor | None:
        kind, _, bearer = connection.headers.get("authorization", "").partition(" ")
        given = bearer if kind.lower() == "bearer" else connection.cookies.get(COOKIE, "")
        return Visitor(self.owner) if hmac.compare_digest(given.encode(), self.token.encode()) else None

    def require(self, visitor: Visitor, role: Role, *, is_write: bool) -> None:
        """Raise the problem of a visitor without that role, or of a write while the console is read-only."""
        if is_write and self.read_only:
            raise Problem(403, "this console is read-only. Start one without --read-only to change something")
        if not visitor.may(role):
            raise Problem(
                403, f"this needs the role {role}, and {visitor.name} has {', '.join(visitor.roles) or 'none'}"
            )


def visitor_of(request: Request) -> Visitor:
    return cast("Visitor", request.state.visitor)


class DoorKeeper:
    """ASGI middleware that lets in only requests of known visitors to the console's own addresses."""

    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self._app, self._doors = app, doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._doors.hosts or (
            origin is not None and origin.partition("://")[2] not in self._doors.hosts
        ):
            refused = Problem(403, f"this console is not {host or origin!r}. Open it by the address that it printed")
            await problem_response(refused)(scope, receive, send)
            return
        token = request.query_params.get("token")
        if token is not None and hmac.compare_digest(token.encode(), self._doors.token.encode()):
            entered = RedirectResponse(request.url.remove_query_params("token").path, 303)
            entered.set_cookie(COOKIE, self._doors.token, httponly=True, samesite="strict")
            await entered(scope, receive, send)
            return
        visitor = self._doors.visitor(request)
        if visitor is None:
            refused = Problem(401, "you are not logged in. Open the console by the address that `orga console` printed")
            await problem_response(refused)(scope, receive, send)
            return
        scope.setdefault("state", {})["visitor"] = visitor
        await self._app(scope, receive, send)
