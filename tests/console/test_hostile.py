"""Hostile texts in every field of every answer: no page runs, fetches or opens anything, or breaks the policy.

The answers are those of real runs and a real configuration. The console adds a hostile text to each of their strings.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, Page, expect
from starlette.responses import JSONResponse
from temporalio.client import Client

from orga.client.config.sections import OrgaConfig
from orga.client.console import routes
from orga.testing import ScriptedModel, answers
from tests.console.stage import Stage, ended_as, in_state
from tests.support.browser import MARK, a_visit
from tests.support.console import a_console
from tests.support.runs.sessions import begin
from tests.support.runs.settings import a_desk
from tests.support.values.corpora import corpus

MARKUP = [
    f"<script>{MARK}</script>",
    f"</script><script>{MARK}</script>",
    f"</title></style></textarea></template><script>{MARK}</script>",
    f'<img src="http://192.0.2.1/x" onerror="{MARK}">',
    f"<svg/onload={MARK}>",
    f'"><svg onload="{MARK}">',
    f"' autofocus onfocus='{MARK}",
    f'<iframe srcdoc="<script>parent.{MARK}</script>"></iframe>',
    f'<iframe src="javascript:{MARK}"></iframe>',
    f'<object data="javascript:{MARK}"></object><embed src="http://192.0.2.1/x">',
    f"<details open ontoggle={MARK}>",
    f'<video><source onerror="{MARK}"></video>',
    f'<math><mi xlink:href="javascript:{MARK}">a</mi></math>',
    f'<form action="http://192.0.2.1/"><button autofocus>a</button></form><input onfocus={MARK} autofocus>',
    '<base href="http://192.0.2.1/"><link rel="stylesheet" href="http://192.0.2.1/x.css">',
    '<meta http-equiv="refresh" content="0; url=http://192.0.2.1/">',
    '<style>@import url("http://192.0.2.1/x.css"); *{background:url(http://192.0.2.1/y)}</style>',
    f"javascript:{MARK}",
    f"data:text/html,<script>{MARK}</script>",
    f"<noscript><p title='</noscript><script>{MARK}</script>'>",
    f"<!--<script>{MARK}</script>-->]]><![CDATA[",
    f"${{{MARK}}}{{{{constructor.constructor('{MARK}')()}}}}",
    "\u202egnp.exe \u2066hidden\u2069 \x1b[31mred\x07\x00\ufeff",
    "__proto__",
    "//192.0.2.1/x",
]
MARKDOWN = [
    f"[a](javascript:{MARK}) [b](&#106;avascript:{MARK}) [c](  JaVaScRiPt:{MARK})",
    f"![a](http://192.0.2.1/x) [![b](http://192.0.2.1/y)](javascript:{MARK})",
    f"<javascript:{MARK}> [d]: javascript:{MARK}\n\n[d] [e](data:text/html,<script>{MARK}</script>)",
    f"```html\n<script>{MARK}</script>\n```\n\n| a |\n|---|\n| <img src=x onerror={MARK}> |",
    "[f](//192.0.2.1/x) [g](/admin) <http://192.0.2.1/z>",
]
TEXTS = cycle([*MARKUP, *MARKDOWN, *(case["text"] for case in corpus("injections")["cases"])])

NOT_TEXT = {
    *("id", "run", "run_id", "kind", "cursor", "reference", "next", "roles", "kinds", "adapters", "place", "where"),
    *("type", "format", "$ref", "required", "enum", "key", "group"),
}
"""Keys whose values name things in later requests, or choose between forms of a page."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT")


def spoiled(value: Any, key: str = "") -> Any:
    """Return an answer with a hostile text at the end of each of its strings."""
    if isinstance(value, Mapping):
        return {name: spoiled(item, name) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [spoiled(item, key) for item in cast("Sequence[Any]", value)]
    if not isinstance(value, str) or key in NOT_TEXT or TIME.match(value):
        return value
    return f"{value} {next(TEXTS)}"


class Spoiled(JSONResponse):
    """An answer with hostile texts."""

    def render(self, content: Any) -> bytes:
        return super().render(spoiled(content))


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each answer of the interface have hostile texts, also those that are in a page from the start."""
    monkeypatch.setattr(routes, "JSONResponse", Spoiled)


async def look(page: Page) -> None:
    """See that a page is still there, without what a script of a text would do to it."""
    await page.wait_for_timeout(200)
    assert (
        await page.locator("main :is(script, iframe, object, embed, img, video, form[action], base, meta)").count() == 0
    )
    assert not await page.evaluate("Boolean(globalThis.hostileTextRan || {}.hostileTextRan)")


@pytest.mark.usefixtures("hostile")
async def test_pages_of_runs_show_hostile_texts_as_texts(stage: Stage) -> None:
    async with (
        in_state(stage, "held") as held,
        ended_as(stage, "completed") as ended,
        in_state(stage, "asked") as asked,
    ):
        session = await begin(stage.loop)
        await session.send("do: look answer")
        tabs = [f"{ended.path}?tab={tab}" for tab in ("timeline&open=1", "sees", "result")]
        paths = [
            "/",
            "/inbox",
            "/start",
            f"/chat/{session.id}",
            f"/compare?a={held.id}&b={ended.id}",
            asked.path,
            *tabs,
        ]
        async with a_visit(stage.browser, stage.console) as visit:
            for path in paths:
                page = await visit.open(path)
                await expect(page.locator("main")).to_contain_text("192.0.2.1")
                await look(page)
                assert page.url == f"{visit.base}{path}"
                await page.close()
        await session.close()


@pytest.mark.usefixtures("hostile")
async def test_views_of_the_configuration_show_hostile_texts_as_texts(
    client: Client, browser: Browser, tmp_path: Path
) -> None:
    async with (
        a_desk(client, ScriptedModel([answers()], repeats=True), tmp_path, OrgaConfig()) as desk,
        a_console(client, desk.queue) as console,
        a_visit(browser, console) as visit,
    ):
        page, shown = await visit.open("/admin"), ""
        for view in ("Settings", "Agents", "Models", "Tools", "Policies", "Schedules", "Workers", "Knowledge"):
            await page.get_by_role("button", name=view, exact=True).click()
            await expect(page.locator("main .settings, main table, main .state").first).to_be_visible()
            await look(page)
            shown += await page.locator("main").inner_text()
        assert "<script>" in shown
        assert "192.0.2.1" in shown


@pytest.mark.usefixtures("hostile")
async def test_a_problem_shows_hostile_texts_as_texts(stage: Stage) -> None:
    name = f'<img src=x onerror="{MARK}">'
    async with a_visit(stage.browser, stage.console) as visit:
        for path in (
            f"/runs/{quote(name, safe='')}",
            f"/chat/{quote(name, safe='')}",
            f"/?text={quote(name)}&agent={quote(name)}",
        ):
            await look(await visit.open(path))
