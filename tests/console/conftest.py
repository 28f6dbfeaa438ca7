"""One browser for all tests of the pages, and one stage for those that need a run in some state."""

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser
from temporalio.client import Client

from tests.console.stage import Stage, a_stage
from tests.support.browser import a_browser


@pytest.fixture(scope="session")
async def browser() -> AsyncGenerator[Browser]:
    async with a_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
async def stage(client: Client, browser: Browser) -> AsyncGenerator[Stage]:
    async with a_stage(client, browser) as stage:
        yield stage
