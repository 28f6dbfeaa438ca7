"""The interface is as its OpenAPI document says, for requests that fit the document and for those that do not."""

import asyncio
import json
import re
import sys
from pathlib import Path

from temporalio.client import Client

from orga.client.console.app import ROUTES
from orga.client.console.doors import Limits
from orga.client.server.search_attributes import register_missing
from orga.testing import answers
from orga.workflows.types.setup import Setup
from tests.support.console import a_console
from tests.support.runs.loop import a_loop

SETTINGS = Path(__file__).parents[1] / "console" / "schemathesis.toml"
ENDLESS = "/events"
"""The path of a stream, whose answer has no end."""
SECONDS = 20
FACTS = Setup(agent="", model="", search_attributes=True)


async def test_schemathesis_finds_nothing(client: Client, tmp_path: Path) -> None:
    await register_missing(client)
    async with (
        a_loop(client, [answers("seen")], setup=FACTS) as loop,
        a_console(client, loop.task_queue, limits=Limits(writes=100_000, starts=100_000)) as console,
    ):
        await loop.run({"task": "look"})
        document, token = f"{console.base}/api/v1/openapi.json", console.console.doors.token
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(SETTINGS), "run"),
            *(document, "--header", f"Authorization: Bearer {token}"),
            *("--exclude-path", f"/api/v1{ENDLESS}", "--max-time", str(SECONDS), "--phases", "coverage,fuzzing"),
            *("--max-examples", "3", "--no-color", "--continue-on-failure", "--generation-deterministic"),
        ]
        running = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await running.communicate()
        assert running.returncode == 0, output.decode()[-20_000:]


async def test_every_route_is_in_the_document_and_every_reference_leads_somewhere(client: Client) -> None:
    async with a_console(client) as console:
        document = await console.get("/openapi.json")
        found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        assert found == {(route.method, f"/api/v1{route.path}") for route in ROUTES}
        references = re.findall(r'"\$ref": "#/(\S+)/(\w+)"', json.dumps(document))
        assert {place for place, _ in references} == {"components/schemas"}
        assert {name for _, name in references} <= document["components"]["schemas"].keys()
