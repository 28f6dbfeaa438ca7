"""The console on a real socket, for tests: its server, and a browser's or a script's client."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
from temporalio.client import Client

from orga.client.config.file import NO_FILE
from orga.client.connect import Connection
from orga.client.console.app import console_app
from orga.client.console.doors import CSRF_HEADER, Doors, cookie_name
from orga.client.console.event_stream import hub_of
from orga.client.console.routes import API, Adapter, Console
from orga.client.console.serving import bound_socket, served
from orga.client.server.endpoint import Endpoint
from orga.workflows.types.workplace import Workplace
from tests.support.values.planted import around_marks

NO_PLACE = Workplace(folder="/", root="/", mark="", digest="")
OWNER = "ann"


@dataclass(frozen=True)
class Served:
    """A console that is running."""

    console: Console
    base: str
    """Its address, such as `http://127.0.0.1:40123`."""
    http: httpx.AsyncClient
    """Logged in as the owner, with the header that writes need."""

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON of an answer with status 200."""
        answer = await self.http.get(f"{API}{path}", params=query)
        assert answer.status_code == 200, answer.text
        assert not around_marks(answer.content), "an answer has a planted secret"
        return answer.json()

    async def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return await self.http.post(f"{API}{path}", json=body, **options)

    async def put(self, path: str, body: Any) -> httpx.Response:
        return await self.http.put(f"{API}{path}", json=body)


@asynccontextmanager
async def a_console(
    client: Client,
    task_queue: str = "orga",
    *,
    signing_key_file: Path | None = None,
    adapters: tuple[Adapter, ...] = (),
    doors_kind: type[Doors] = Doors,
    config_file: Path = NO_FILE,
    port: int = 0,
    **doors: Any,
) -> AsyncGenerator[Served]:
    """Serve a console for the runs of a server. `doors` are further fields of its doors."""
    at = bound_socket("127.0.0.1", port)
    port = at.getsockname()[1]
    endpoint = Endpoint("127.0.0.1:7233")
    connection = Connection(client, endpoint, NO_PLACE, task_queue, task_queue)
    doors.setdefault("token", secrets.token_urlsafe())
    own = doors_kind(frozenset({f"127.0.0.1:{port}"}), OWNER, **doors)
    console = Console(connection, own, signing_key_file, adapters, config_file=config_file)
    base = f"http://127.0.0.1:{port}"
    headers, cookies = {CSRF_HEADER: "1"}, {cookie_name(base): console.doors.token}
    app = console_app(console)
    async with (
        served(app, [at]),
        httpx.AsyncClient(base_url=base, headers=headers, cookies=cookies, timeout=30) as http,
    ):
        yield Served(console, base, http)
    await hub_of(app, console).close()
