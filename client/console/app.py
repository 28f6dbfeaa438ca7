"""Puts the web console together: pages and the interface `/api/v1` for the runs on one Temporal server.

The console stores nothing about runs. Everything it shows comes from Temporal, so it can be restarted at any time.
"""

from asyncio import to_thread
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from orga.client.console import (
    actions,
    admin,
    event_stream,
    history,
    markdown,
    model_view,
    rows,
    settings_api,
    snapshots,
    start_runs,
    waits,
)
from orga.client.console.doors import DoorKeeper
from orga.client.console.openapi import openapi_document
from orga.client.console.pages import page_routes
from orga.client.console.problems import Problem, handle_problem
from orga.client.console.routes import API, Call, Console, NoParameters, Routes, endpoints
from orga.client.errors import OrgaError
from orga.workflows.types.record import InvalidInput


def console_app(console: Console) -> Starlette:
    """Return the application. Whoever serves it closes `console.connection`."""
    adapted = [route for adapter in console.adapters for route in adapter.routes]
    media_paths = tuple(path for adapter in console.adapters for path in adapter.media_paths)
    app = Starlette(
        routes=[Mount(API, routes=endpoints(ROUTES), name="api"), *adapted, *page_routes()],
        middleware=[Middleware(QuotedPaths), Middleware(DoorKeeper, doors=console.doors, media_paths=media_paths)],
        exception_handlers=_HANDLERS,
    )
    app.state.console = console
    app.state.error_forms = {path: form for each in console.adapters for path, form in each.error_forms.items()}
    return app


# Starlette raises again what the handler of `Exception` has answered, so expected errors are named, too
_HANDLERS: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = dict.fromkeys(
    (Problem, HTTPException, OrgaError, InvalidInput, Exception), handle_problem
)


class QuotedPaths:
    """ASGI middleware that leaves paths quoted. So an id with a slash is one part of a path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if raw := scope.get("raw_path"):
            scope["path"] = raw.decode("ascii", "replace").partition("?")[0]
        await self._app(scope, receive, send)


ROUTES = Routes()
"""All routes of the interface. The routes of the modules are added below."""


@ROUTES.get("/me", {"type": "object"})
async def _me(call: Call[NoParameters]) -> dict[str, Any]:
    """Return who you are and what you may do here."""
    return {
        "name": call.visitor.name,
        "roles": list(call.visitor.roles),
        "tenants": None if call.visitor.tenants is None else sorted(call.visitor.tenants),
        "read_only": call.console.doors.read_only,
        "kinds": ["agent", "goal", "session"],
        "adapters": [adapter.name for adapter in call.console.adapters],
        "version": version("orga"),
        "ui_url": call.console.connection.endpoint.ui,
    }


@ROUTES.get("/openapi.json", {"type": "object"})
async def _openapi(_call: Call[NoParameters]) -> dict[str, Any]:
    """Describe the interface."""
    return await to_thread(_document)  # it takes a moment the first time


@cache
def _document() -> dict[str, Any]:
    return openapi_document(ROUTES, version("orga"))


for module in (
    rows,
    snapshots,
    waits,
    history,
    model_view,
    markdown,
    actions,
    start_runs,
    event_stream,
    settings_api,
    admin,
):
    ROUTES.extend(module.ROUTES)
