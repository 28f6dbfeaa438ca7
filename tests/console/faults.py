"""Worker, server and console are killed by SIGKILL under an open page, and come back. Only `make console-test` runs it.

The page goes on by itself. No act of a person is lost or done twice, and neither is an effect of a tool.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from playwright.async_api import Browser, Page, expect
from temporalio.client import Client

from orga.client.console.doors import CSRF_HEADER, cookie_name
from orga.client.console.routes import API
from orga.client.history.values import data_converter
from orga.client.journal.reading import read_journal
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool
from tests.conftest import SERVER_ARGUMENTS
from tests.support.browser import Visit
from tests.support.console import OWNER, a_console
from tests.support.crash.stage import NEVER
from tests.support.crash.worker import Backstage, CrashWorker, Fate
from tests.support.hold import wait_until
from tests.support.parts.free_port import free_port

TOKEN = "the-token-of-ann"
RECOVERS_MS = 30_000
"""On a machine that does other things, too. The target is 5 s, and the times are printed."""


def held_tools(backstage: Backstage) -> Sequence[FakeTool]:
    """Return tools whose effect is a line in a file. `send` ends only once it is let go."""
    return [backstage.tool("look", "read_only"), backstage.tool("note"), backstage.tool("send", held=True)]


async def _serve_console(address: str, port: int, queue: str) -> None:
    client = await Client.connect(address, data_converter=data_converter, lazy=True)
    async with a_console(client, queue, port=port, token=TOKEN):
        await asyncio.Event().wait()


def _console_process(address: str, port: int, queue: str) -> None:
    asyncio.run(_serve_console(address, port, queue))


@dataclass
class Parts:
    """The processes under the page."""

    executable: str
    folder: Path
    server_port: int
    console_port: int
    server: asyncio.subprocess.Process | None = None
    console: BaseProcess | None = None
    worker: BaseProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.console_port}"

    @property
    def effects(self) -> list[list[str]]:
        file = self.folder / "effects"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    async def start_server(self) -> None:
        self.server = await asyncio.create_subprocess_exec(
            *(self.executable, "server", "start-dev", "--headless", "--port", str(self.server_port)),
            *("--db-filename", str(self.folder / "server.db"), "--log-level", "error", *SERVER_ARGUMENTS),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await wait_until(lambda: _answers(self.server_port))

    async def start_console(self) -> None:
        arguments = (self.address, self.console_port, self.folder.name)
        self.console = get_context("spawn").Process(target=_console_process, args=arguments, daemon=True)
        self.console.start()
        await wait_until(lambda: _answers(self.console_port))

    def start_worker(self) -> None:
        effects = self.folder / "effects"
        self.worker = CrashWorker(self.address, self.folder.name, effects, NEVER, Fate(), held_tools).started()

    def kill(self, *parts: Any) -> None:
        for part in parts:
            if part is not None:
                part.kill()

    async def client(self) -> Client:
        return await Client.connect(self.address, data_converter=data_converter)


async def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


@pytest.fixture
async def parts(temporal: str, tmp_path: Path) -> AsyncGenerator[Parts]:
    parts = Parts(temporal, tmp_path, free_port(), free_port())
    await parts.start_server()
    await register_missing(await parts.client())
    await parts.start_console()
    parts.start_worker()
    yield parts
    parts.kill(parts.worker, parts.console, parts.server)
    if parts.server is not None:
        await parts.server.wait()


@asynccontextmanager
async def a_page(browser: Browser, parts: Parts) -> AsyncGenerator[Page]:
    context = await browser.new_context()
    await context.add_cookies([{"name": cookie_name(parts.base), "value": TOKEN, "url": parts.base}])
    yield await Visit(context, parts.base).open("/start")
    await context.close()


async def started_from_the_page(page: Page, task: str) -> str:
    await page.get_by_label("Task", exact=True).fill(task)
    await page.keyboard.press("Control+Enter")
    await page.wait_for_url("**/runs/*", timeout=RECOVERS_MS)
    return page.url.rpartition("/")[2].partition("?")[0]


async def steer(page: Page, text: str) -> None:
    await page.get_by_role("button", name="Steer", exact=True).click()
    await page.get_by_label("Guidance").fill(text)
    await page.get_by_role("dialog").get_by_role("button", name="Steer").click()


async def sent_twice(parts: Parts, run_id: str, action_id: str) -> list[str]:
    """Send the same action two times, and return what became of each."""
    login = {"Authorization": f"Bearer {TOKEN}", CSRF_HEADER: "1"}
    async with httpx.AsyncClient(base_url=parts.base, headers=login, timeout=60) as http:
        body = {"id": action_id, "kind": "add_context", "text": "the same once more"}
        answers = [await http.post(f"{API}/runs/{run_id}/actions", json=body) for _ in range(2)]
    return [answer.json()["state"] for answer in answers]


async def applied(parts: Parts, run_id: str) -> list[tuple[str, str]]:
    client = await parts.client()
    return [
        (entry.data["kind"], entry.data["by"])
        async for entry in read_journal(client, run_id)
        if entry.event == "InterventionApplied"
    ]


async def had_effect(parts: Parts, tool: str, times: int = 1) -> None:
    async def had() -> bool:
        return [name for name, _ in parts.effects].count(tool) >= times

    await wait_until(had, 90)


@pytest.mark.timeout(400)
async def test_kills_under_an_open_page_lose_nothing_and_repeat_nothing(browser: Browser, parts: Parts) -> None:
    async with a_page(browser, parts) as page:
        run_id = await started_from_the_page(page, "look note send look")
        state, sent = page.locator(".run-state"), page.locator(".run-sent")
        await had_effect(parts, "send")
        await expect(page.locator(".flight")).to_contain_text("send", timeout=RECOVERS_MS)

        parts.kill(parts.worker)
        await expect(page.locator(".trouble")).to_contain_text("orga worker", timeout=RECOVERS_MS)
        await steer(page, "the worker is gone")
        await expect(sent).to_contain_text("received", timeout=RECOVERS_MS)
        parts.start_worker()
        await expect(page.locator(".trouble")).to_have_count(0, timeout=RECOVERS_MS)
        await had_effect(parts, "send", 2)

        action = uuid4().hex
        before = await sent_twice(parts, run_id, action)
        parts.kill(parts.console)
        await expect(page.locator("#stale")).to_be_visible(timeout=RECOVERS_MS)
        await parts.start_console()
        began = monotonic()
        await expect(page.locator("#stale")).to_be_hidden(timeout=RECOVERS_MS)
        print(f"\nthe console is back: live again after {monotonic() - began:.1f} s")
        assert {*before, *await sent_twice(parts, run_id, action)} == {"received"}

        parts.kill(parts.server)
        assert parts.server is not None
        await parts.server.wait()
        await steer(page, "the server is gone")
        await parts.start_server()
        began = monotonic()
        await expect(sent).to_contain_text("received", timeout=2 * RECOVERS_MS)
        print(f"the server is back: the act has arrived after {monotonic() - began:.1f} s")

        (parts.folder / "release").touch()
        await expect(state).to_contain_text("completed", timeout=2 * RECOVERS_MS)
        await expect(page.locator(".acts")).to_contain_text("the server is gone", timeout=RECOVERS_MS)
        await page.get_by_role("tab", name="Timeline").click()
        await expect(page.locator(".its > li .it-number")).to_have_text(["·", *"12345"])
        found = await applied(parts, run_id)
    assert sorted(found) == [("add_context", OWNER), ("steer", OWNER), ("steer", OWNER)]
    names = [name for name, _ in parts.effects]
    keys = {tuple(effect) for effect in parts.effects}
    assert (names.count("look"), names.count("note")) == (2, 1)
    assert len(keys) == 4, "a call that was cut off has run again under its own idempotency key"
