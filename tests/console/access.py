"""Each page in each state, light and dark, on a screen and on a phone, against WCAG 2.2 A and AA.

It takes minutes, so only `make console-test` runs it.
"""

from itertools import product
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from tests.console.stage import ENDINGS, LIVE, STREAMED, Stage, ended_as, in_state
from tests.support.browser import a_visit, axe_violations
from tests.support.runs.sessions import begin

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LOOKS = list(product((1200, 360), SCHEMES))


async def violations(page: Page) -> list[str]:
    """Return what axe finds in all looks, and where the page is wider than its screen."""
    found: list[str] = []
    for width, scheme in LOOKS:
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme=scheme)
        found += [f"{width} {scheme}: {each}" for each in await axe_violations(page)]
        if await page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"it is wider than {width}")
    return found


@pytest.mark.parametrize("state", LIVE)
async def test_a_live_run_is_accessible(stage: Stage, state: str) -> None:
    async with in_state(stage, state) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"{run.path}?tab=timeline&open=1")
        await expect(page.locator(LIVE[state].where)).to_contain_text(LIVE[state].text)
        assert await violations(page) == []
        await page.locator(".menu summary").click()
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Steer", exact=True).click()
        assert await violations(page) == []


@pytest.mark.parametrize("name", ENDINGS)
async def test_an_ended_run_is_accessible(stage: Stage, name: str) -> None:
    async with ended_as(stage, name) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(run.path)
        await expect(page.locator(".run-state")).to_contain_text(ENDINGS[name].state)
        for tab in ("Timeline", "What the model sees", "Result"):
            await page.get_by_role("tab", name=tab).click()
            assert await violations(page) == []


@pytest.mark.parametrize(
    "path", ["/", "/inbox", "/start", "/admin", "/chat/new", "/compare", "/runs/nobody", "/?text=nothing+has+this"]
)
async def test_a_page_is_accessible(stage: Stage, path: str) -> None:
    async with in_state(stage, "held"), a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(path)
        assert await violations(page) == []
        await page.keyboard.press("?")
        assert await violations(page) == []


async def test_a_chat_is_accessible_while_it_streams_and_waits(stage: Stage) -> None:
    session = await begin(stage.loop)
    await session.post("do: look pay stream:access")
    async with a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"/chat/{session.id}")
        await expect(page.locator(".wait")).to_have_count(1)
        assert await violations(page) == []
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator(".flight-text")).to_be_visible(timeout=15_000)
        assert await violations(page) == []
        stage.model.hold("access").go.set()
        await expect(page.locator(".reply").last).to_contain_text(STREAMED, timeout=15_000)
        assert await violations(page) == []
    await session.close()
