"""One browser for all tests of the pages."""

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser

from tests.support.browser import a_browser


@pytest.fixture(scope="session")
async def browser() -> AsyncGenerator[Browser]:
    async with a_browser() as browser:
        yield browser
