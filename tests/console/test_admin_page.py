"""The page of settings in a real browser, with a real worker that checks and holds them."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from pytest_httpserver import HTTPServer
from temporalio.client import Client

from orga.client.config.sections import OrgaConfig
from orga.testing import ScriptedModel, answers
from tests.support.browser import a_visit, axe_violations
from tests.support.console import OWNER, a_console
from tests.support.runs.settings import a_desk

VIEWS = ["Agents", "Models", "Tools", "Policies", "Schedules", "Workers", "Knowledge"]
LIMIT, INSTRUCTIONS = "agents.default.config.max_iterations", "agents.default.instructions"


async def test_settings_are_edited_compared_saved_and_taken_back(
    client: Client, browser: Browser, tmp_path: Path
) -> None:
    async with (
        a_desk(client, ScriptedModel([answers()], repeats=True), tmp_path, OrgaConfig()) as desk,
        a_console(client, desk.queue) as console,
        a_visit(browser, console) as visit,
    ):
        page = await visit.open("/admin")
        await page.get_by_label("Find a key").fill("agents.default")
        await page.get_by_label(LIMIT).fill("0")
        await page.get_by_label(INSTRUCTIONS).fill("Be brief.")
        await page.get_by_role("button", name="Review and save").click()
        await page.get_by_role("dialog").get_by_role("button", name="Save").click()
        await expect(page.locator(".setting .error")).to_be_visible()
        assert (await desk.read()).version == 0

        await page.get_by_label(LIMIT).fill("9")
        await page.get_by_role("button", name="Review and save").click()
        await expect(page.locator(".diff .tone-done").last).to_contain_text("9")
        assert await axe_violations(page) == []
        await page.get_by_role("dialog").get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Saved as version 1")).to_be_visible()
        assert (await desk.read()).values == {LIMIT: 9, INSTRUCTIONS: "Be brief."}

        await desk.save({LIMIT: 10})  # somebody else
        await page.get_by_label(LIMIT).fill("11")
        await page.get_by_role("button", name="Review and save").click()
        await page.get_by_role("dialog").get_by_role("button", name="Save").click()
        await expect(page.get_by_role("dialog")).to_contain_text("read the settings again")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_label(LIMIT)).to_have_value("11")
        await page.get_by_role("button", name="Discard").click()
        await expect(page.get_by_label(LIMIT)).to_have_value("10")

        await page.get_by_role("row", name=f"1 now {OWNER}").get_by_role("button", name="Go back to it").click()
        await page.get_by_role("dialog").get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Saved as version 3")).to_be_visible()
        assert (await desk.read()).values == {LIMIT: 9, INSTRUCTIONS: "Be brief."}


async def test_each_view_shows_what_the_worker_has_and_judges_a_call(
    client: Client, browser: Browser, tmp_path: Path
) -> None:
    async with (
        a_desk(client, ScriptedModel([answers()], repeats=True), tmp_path, OrgaConfig()) as desk,
        a_console(client, desk.queue) as console,
        a_visit(browser, console) as visit,
    ):
        page = await visit.open("/admin")
        for view in VIEWS:
            await page.get_by_role("button", name=view).click()
            await expect(page.locator("main table, main .state").first).to_be_visible()
            await expect(page.locator(".state.failed")).to_have_count(0)
            assert await axe_violations(page) == []
        await page.go_back()
        await expect(page.get_by_role("region", name="Workers")).to_contain_text(desk.queue)
        await page.get_by_role("button", name="Policies").click()
        await page.get_by_label("Tool", exact=True).fill("write_file")
        await page.get_by_label("Arguments as JSON").fill('{"path": "a.txt"}')
        await page.get_by_role("button", name="Judge it").click()
        await expect(page.get_by_text("write_file is not listed")).to_be_visible()


async def test_a_check_of_the_models_shows_a_context_that_is_too_small(
    client: Client, browser: Browser, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a model answers, so it has no problem, but a warning."""
    served = {"name": "qwen3:latest", "model": "qwen3:latest", "context_length": 4_096}
    httpserver.expect_request("/api/ps").respond_with_json({"models": [served]})
    httpserver.expect_request("/api/show").respond_with_json({"model_info": {"qwen3.context_length": 40_960}})
    httpserver.expect_request("/v1/models").respond_with_json({"data": [{"id": "qwen3:latest"}]})
    monkeypatch.setenv("OLLAMA_HOST", httpserver.url_for(""))
    monkeypatch.setenv("ORGA_MODELS__DEFAULT", "ollama:qwen3")
    async with a_console(client) as console, a_visit(browser, console) as visit:
        page = await visit.open("/admin?view=models")
        await page.get_by_role("button", name="Ask providers and servers whether they answer").click()
        row = page.get_by_role("row", name="ollama:qwen3")
        await expect(row).to_contain_text("with a context of 4,096 tokens")
        await expect(row.get_by_text("yes")).to_have_count(2)
        await expect(page.get_by_role("row", name="ollama:NAME").get_by_text("yes")).to_have_count(1)  # nobody asked
