"""Requests of all kinds against the console's interface, by schemathesis."""

import asyncio
import sys
from pathlib import Path

from temporalio.client import Client

from orga.client.console.doors import Limits
from orga.client.server.search_attributes import register_missing
from orga.testing import answers
from orga.workflows.types.setup import Setup
from tests.support.console import a_console
from tests.support.runs.loop import a_loop

SETTINGS = Path(__file__).with_name("schemathesis.toml")
ENDLESS = "/events"
"""The path of a stream, whose answer has no end."""
FACTS = Setup(agent="", model="", search_attributes=True)


async def check_interface(client: Client, folder: Path, *, phases: str, examples: int) -> None:
    """Send the same requests each time, and fail if an answer is not as the OpenAPI document says.

    Args:
        client: The client of the Temporal server.
        folder: An empty one.
        phases: `fuzzing`, or `coverage,fuzzing`, whose first part has about 1,700 requests.
        examples: The random requests of each operation.
    """
    await register_missing(client)
    async with (
        a_loop(client, [answers("seen")], setup=FACTS) as loop,
        a_console(client, loop.task_queue, limits=Limits(writes=100_000, starts=100_000)) as console,
    ):
        await loop.run({"task": "look"})
        document, token = f"{console.base}/api/v1/openapi.json", console.console.doors.token
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(SETTINGS), "run"),
            *(document, "--header", f"Authorization: Bearer {token}", "--exclude-path", f"/api/v1{ENDLESS}"),
            *("--phases", phases, "--max-examples", str(examples), "--generation-deterministic"),
            *("--request-timeout", "60", "--suppress-health-check", "all", "--no-color", "--continue-on-failure"),
        ]
        running = await asyncio.create_subprocess_exec(
            *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await running.communicate()
        assert running.returncode == 0, output.decode()[-20_000:]
