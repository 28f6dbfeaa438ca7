"""The client of AG-UI that its makers publish, as a process."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.parts.front_ends import agui_package, assistant_ui

_PROGRAMS = Path(__file__).parents[1] / "programs"
_MAX_LINE = 2**24


@dataclass(frozen=True)
class Exchanged:
    """The events and the outcome of one run of the protocol."""

    events: list[dict[str, Any]]
    result: Any
    error: str | None
    messages: list[dict[str, Any]]
    """All messages that the client has now."""
    state: Any
    interrupts: list[dict[str, Any]]

    @property
    def types(self) -> list[str]:
        """The types of its events, without repetitions of content and state."""
        shown = [event["type"] for event in self.events if event["type"] != "STATE_SNAPSHOT"]
        return [each for at, each in enumerate(shown) if at == 0 or each != shown[at - 1]]

    def texts(self, role: str) -> list[str]:
        return [message["content"] for message in self.messages if message["role"] == role and message.get("content")]


@dataclass(frozen=True)
class AguiClient:
    _process: asyncio.subprocess.Process

    async def run(self, **request: Any) -> Exchanged:
        """Send a request, and return what came until its run of the protocol was over."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return Exchanged(
            **{"result": None, "error": None, "state": None} | json.loads(await self._process.stdout.readline())
        )


@asynccontextmanager
async def agui_client(url: str, thread: str, token: str) -> AsyncGenerator[AguiClient]:
    """Start a client of an agent, and end it."""
    arguments = (str(_PROGRAMS / "agui_client.mjs"), str(agui_package()), url, thread, token)
    pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec("node", *arguments, limit=_MAX_LINE, **pipes)
    try:
        yield AguiClient(process)
    finally:
        process.kill()
        await process.wait()


async def assistant_ui_messages(*arguments: str) -> list[dict[str, Any]]:
    """Let assistant-ui take the steps, and return the last message after each, as its program says."""
    command = (str(_PROGRAMS / "assistant_ui.mjs"), str(assistant_ui()), *arguments)
    pipes: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec("node", *command, limit=_MAX_LINE, **pipes)
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.decode().splitlines()]
