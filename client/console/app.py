"""The web console: one process that serves pages and the interface `/api/v1` for runs on one Temporal server.

It keeps nothing of its own. What it shows comes from Temporal, so it can be stopped and started at any time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from temporalio.client import Client

from orga.client.connect import Connection
from orga.client.console.doors import DoorKeeper, Doors, Visitor, visitor_of
from orga.client.console.problems import Problem, handle_problem
from orga.client.errors import OrgaError
from orga.workflows.types.record import InvalidInput

API = "/api/v1"


@dataclass(frozen=True)
class Console:
    """What all requests share."""

    connection: Connection
    doors: Doors
    """Who may enter, and who may do what."""

    @property
    def client(self) -> Client:
        return self.connection.client


def console_of(request: Request) -> Console:
    return cast("Console", request.app.state.console)


def console_app(console: Console) -> Starlette:
    """Return the application. Whoever serves it closes `console.connection`."""
    app = Starlette(
        routes=[Mount(API, routes=[*_api_routes()], name="api")],
        middleware=[Middleware(DoorKeeper, doors=console.doors)],
        exception_handlers=dict.fromkeys((Problem, HTTPException, OrgaError, InvalidInput, Exception), handle_problem),
    )
    app.state.console = console
    return app


def _api_routes() -> Sequence[BaseRoute]:
    return [Route("/me", _me, name="me")]


async def _me(request: Request) -> Response:
    visitor: Visitor = visitor_of(request)
    console = console_of(request)
    return JSONResponse(
        {
            "name": visitor.name,
            "roles": list(visitor.roles),
            "tenants": None if visitor.tenants is None else sorted(visitor.tenants),
            "read_only": console.doors.read_only,
            "kinds": ["agent", "goal", "session"],
            "adapters": [],
            "ui_url": console.connection.endpoint.ui,
        }
    )
