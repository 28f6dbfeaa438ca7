"""The guide of the console: its commands work as they stand there, and they use the whole interface."""

import asyncio
import re
from pathlib import Path
from typing import Any

from temporalio.client import Client

from orga.client.console.app import ROUTES
from orga.client.console.doors import Limits
from orga.client.runs.goals import start_goal
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.setup import Setup
from tests.support.console import Served, a_console
from tests.support.hold import wait_until
from tests.support.runs.approvals import Asks, wait_for_held_calls
from tests.support.runs.loop import a_loop

GUIDE = (Path(__file__).parents[3] / "docs" / "console.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
LONG = "The lamp is paid. " * 200


class Shell:
    """Runs the commands of the guide, with the function that the guide defines."""

    def __init__(self, console: Served) -> None:
        """Take the address and the token of a console."""
        [self._setup] = [block for block in COMMANDS if block.startswith("export ORGA_CONSOLE")]
        self._setup = self._setup.replace("http://127.0.0.1:8642", console.base)
        self._setup = self._setup.replace("THE_TOKEN", console.console.doors.token)
        self.values: dict[str, str] = {}

    async def __call__(self, command: str) -> None:
        """Run a command. A variable that it sets keeps its value for later commands."""
        values = "".join(f"{name}='{value}'\n" for name, value in self.values.items())
        name, assigns, _ = command.partition("=$(")
        shows = f'\nprintf %s "${name}"' if assigns else ""
        script = f"set -eu\n{self._setup}\n{values}{command}{shows}"
        running = await asyncio.create_subprocess_exec(
            "bash", "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, errors = await running.communicate()
        assert running.returncode == 0, f"{command}\n{output.decode()}\n{errors.decode()}"
        if assigns:
            self.values[name] = output.decode()
            assert self.values[name] not in {"", "null"}, command


async def test_the_commands_of_the_guide_work(client: Client) -> None:
    await register_missing(client)
    facts = Setup(agent="", model="", search_attributes=True)
    replies = [calls("pay", cents=250), answers(LONG), answers("checked")]
    async with (
        a_loop(client, replies, FakeTool("pay"), engine=Asks(), setup=facts) as loop,
        a_console(client, loop.task_queue, limits=Limits(writes=1_000)) as console,
    ):
        goal = await start_goal(client, "look", task_queue="nobody", workflow_id="guide-goal", again=True)
        shell = Shell(console)
        for block in COMMANDS:
            for command in lines_of(block):
                await _wait_before(command, console, client.get_workflow_handle(shell.values.get("RUN", "none")))
                await shell(command)
        await client.get_workflow_handle(goal.id).terminate()
        await client.get_workflow_handle(shell.values["FORK"]).result()


async def _wait_before(command: str, console: Served, run: Any) -> None:
    """Wait until the answers have what a reader takes from them."""
    if "/inbox" in command:
        await wait_for_held_calls(run)
        await wait_until(lambda: _has_reached_the_inbox(console, run.id))
    if command.startswith("REFERENCE="):
        await run.result()


async def _has_reached_the_inbox(console: Served, run_id: str) -> bool:
    return any(wait["run"] == run_id for wait in (await console.get("/inbox"))["items"])


def lines_of(block: str) -> list[str]:
    """Return the commands of a block that ask the interface, apart from those that need a schedule or settings."""
    asking = [line for line in block.splitlines() if re.search(r"(^|\W)api [-\"]", line)]
    return [line for line in asking if "-X PUT" not in line and "$SCHEDULE" not in line]


def test_the_guide_uses_every_route() -> None:
    text = "\n".join(line for block in COMMANDS for line in block.splitlines() if "api " in line)
    [several] = re.findall(r"for what in (.*?);", text)
    used = re.findall(r'"\$API(/[^"?]*)', text) + [f"/{name}" for name in several.split()]
    missing = [route.name for route in ROUTES if not any(re.fullmatch(_pattern(route.path), path) for path in used)]
    assert missing == []


def _pattern(path: str) -> str:
    return re.sub(r"{\w+}", r"[^/]+", path)
