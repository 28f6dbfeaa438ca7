"""A real browser on the console's pages. It reports what no page may do, such as a request to another host."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright

from orga.client.console.doors import cookie_name
from tests.support.console import Served
from tests.support.parts.system_packages import require

AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
MARK = "globalThis.hostileTextRan = true"
"""The effect of hostile texts of the tests if they are executed."""


NOTE_BREACHES = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI}`))"""


@dataclass
class Visit:
    """A person's browser, logged in to a console."""

    context: BrowserContext
    base: str
    faults: list[str] = field(default_factory=list[str])
    """Requests to elsewhere, dialogs, errors of scripts, and breaches of the content security policy."""

    async def open(self, path: str, *, width: int = 1200, scheme: Literal["light", "dark"] = "light") -> Page:
        """Open a page in a new tab, and wait until it shows its content."""
        page = await self.context.new_page()
        page.set_default_timeout(10_000)
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme=scheme)
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._note_message)
        page.on("request", self._note_request)
        await page.add_init_script(NOTE_BREACHES)
        await page.goto(f"{self.base}{path}")
        await page.wait_for_selector("main:not([aria-busy])")
        return page

    def _note_message(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text or "TrustedHTML" in message.text:
            self.faults.append(f"policy: {message.text}")

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith((self.base, "data:")):
            self.faults.append(f"request: {request.url}")


@asynccontextmanager
async def a_browser() -> AsyncGenerator[Browser]:
    """Start Chromium. It has no sandbox, since tests may run as root."""
    require("chromium", "chromium")
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        yield browser
        await browser.close()


@asynccontextmanager
async def a_visit(browser: Browser, console: Served) -> AsyncGenerator[Visit]:
    """Enter as the owner of the console. At the end, no page has done what none may do."""
    context = await browser.new_context(reduced_motion="reduce")
    await context.add_cookies(
        [{"name": cookie_name(console.base), "value": console.console.doors.token, "url": console.base}]
    )
    visit = Visit(context, console.base)
    yield visit
    ran = [await page.evaluate("() => Boolean(globalThis.hostileTextRan)") for page in context.pages]
    await context.close()
    assert visit.faults == []
    assert not any(ran)


async def axe_violations(page: Page) -> list[str]:
    """Return what axe finds wrong with a page, one line for each rule."""
    await page.evaluate(f"() => {{ {AXE_FILE_PATH.read_text()} }}")
    found: dict[str, Any] = await page.evaluate(
        "(rules) => axe.run(document, { runOnly: { type: 'tag', values: rules } })", AXE_RULES
    )
    assert found["passes"]
    return [f"{each['id']}: {[node['html'][:200] for node in each['nodes']]}" for each in found["violations"]]
