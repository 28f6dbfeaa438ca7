"""The pages in a real browser, with a real console, server and worker: runs, inbox, and what all pages share."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import pytest
from playwright.async_api import Browser, Page, expect
from temporalio.client import Client

from orga.activities.ports import ModelRequest
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import STARTED_BY_MEMO, AgentHandle
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.setup import Setup
from tests.support.browser import MARK, a_visit, axe_violations
from tests.support.console import OWNER, Served, a_console
from tests.support.runs.approvals import Asks, wait_for_held_calls
from tests.support.runs.deferred import a_check
from tests.support.runs.loop import Loop, a_loop

FACTS = Setup(agent="", model="", search_attributes=True)
HOSTILE = [
    f"<script>{MARK}</script>",
    f'<img src="http://192.0.2.1/x" onerror="{MARK}">',
    f'"><svg onload="{MARK}">',
    f"[click](javascript:{MARK})![seen](http://192.0.2.1/y)",
    f"</script><script>{MARK}</script>",
    "{{7*7}}${7*7}<!--",
    "\u202egnp.exe \u2066hidden\u2069 \x1b[31mred\x07",
]
TASK = "pay the lamp's bill " + " ".join(HOSTILE)
LONG_TASK = "write a long note"
YEAR_TASK, COLOUR_TASK, LOOK_TASK = "ask me for the year", "ask me for the colour", "look twice"
CHECK_TASK = "check her credit"
AGENTS = {"default": AgentConfig(tools=("pay", "look", "check", "ask_user"))}


def reply(request: ModelRequest) -> Reply:
    """Do what the task asks for, then answer with what came of it."""
    results = [message.text for message in request.messages if message.role == "tool"]
    if results:
        return answers(results[-1] + " ".join(HOSTILE))
    if any(YEAR_TASK in message.text for message in request.messages):
        return calls("ask_user", question=f"Which year? {HOSTILE[1]}")
    if any(COLOUR_TASK in message.text for message in request.messages):
        return calls("ask_user", question="Which colour?", options=["red", "blue"])
    if any(CHECK_TASK in message.text for message in request.messages):
        return calls("check", person=HOSTILE[1])
    if any(LOOK_TASK in message.text for message in request.messages):
        return calls("look")
    is_long = any(LONG_TASK in message.text for message in request.messages)
    return calls("pay", cents=250, note="a line\n" * 600 if is_long else HOSTILE[0], to="\n".join(HOSTILE))


@dataclass(frozen=True)
class Scene:
    client: Client
    loop: Loop
    console: Served
    browser: Browser


@pytest.fixture(scope="module")
async def scene(client: Client, browser: Browser) -> AsyncGenerator[Scene]:
    await register_missing(client)
    async with (
        a_loop(
            client,
            [reply],
            *(FakeTool("pay", "paid"), FakeTool("look"), a_check()),
            engine=Asks(),
            setup=FACTS,
            agents=AGENTS,
        ) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        yield Scene(client, loop, console, browser)


async def decisions(client: Client, run_id: str) -> list[tuple[bool, str, str]]:
    return [
        (entry.data["approved"], entry.data["approver"], entry.data.get("reason", ""))
        async for entry in read_journal(client, run_id)
        if entry.event == "ApprovalResolved" and "approved" in entry.data
    ]


async def held_run(scene: Scene, task: str = TASK) -> str:
    run = await scene.loop.start(task)
    await wait_for_held_calls(run)
    return run.id


def card(page: Page, run_id: str):
    return page.locator(".wait", has=page.locator(f'a[href="/runs/{run_id}"]'))


async def test_a_call_is_approved_by_click_and_denied_by_key(scene: Scene) -> None:
    first, second = [await held_run(scene) for _ in range(2)]
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open("/inbox")
        await card(page, first).get_by_role("button", name="Approve").click()
        await expect(card(page, first)).to_contain_text(f"approved by {OWNER}")
        await expect(page).to_have_title("(1) Inbox · orga")

        await card(page, second).focus()
        await page.keyboard.press("d")
        await page.keyboard.type("not this month")
        await page.keyboard.press("Enter")
        await expect(card(page, second)).to_contain_text(f"denied by {OWNER}")
    assert await decisions(scene.client, first) == [(True, OWNER, "")]
    assert await decisions(scene.client, second) == [(False, OWNER, "not this month")]


async def test_a_call_is_approved_with_other_arguments(scene: Scene) -> None:
    run = await held_run(scene)
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open("/inbox")
        await card(page, run).get_by_role("button", name="Change the arguments").click()
        field = card(page, run).get_by_role("textbox", name="Arguments as JSON")
        await expect(field).to_be_focused()
        assert "\\u202e" in await field.input_value(), "a person sees each character"
        await field.fill('{"cents": 1')
        await card(page, run).get_by_role("button", name="Approve").click()
        assert "no JSON" in await field.evaluate("field => field.validationMessage")
        await field.fill('{"cents": 1, "by": "hand"}')
        await card(page, run).get_by_role("button", name="Approve").click()
        await expect(card(page, run)).to_contain_text(f"approved by {OWNER}")
    assert await decisions(scene.client, run) == [(True, OWNER, "")]
    approved = [entry.data.get("arguments", "") async for entry in read_journal(scene.client, run)]
    assert '{"cents": 1, "by": "hand"}' in approved


async def test_a_call_is_approved_by_key_and_another_tab_says_by_whom(scene: Scene) -> None:
    run = await held_run(scene)
    async with a_visit(scene.browser, scene.console) as visit:
        page, other = [await visit.open("/inbox") for _ in range(2)]
        await expect(card(other, run)).to_be_visible()
        await expect(card(page, run)).to_be_visible()
        await page.keyboard.press("j")
        await expect(page.locator(".wait:focus")).to_have_count(1)
        await card(page, run).focus()
        await page.keyboard.press("a")
        await expect(card(page, run)).to_contain_text(f"approved by {OWNER}")
        await expect(card(other, run)).to_contain_text(f"approved by {OWNER}")
    assert await decisions(scene.client, run) == [(True, OWNER, "")]


async def test_a_decision_of_somebody_else_is_shown(scene: Scene) -> None:
    run = await scene.loop.start(TASK)
    [held] = await wait_for_held_calls(run)
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open("/inbox")
        await expect(card(page, run.id)).to_be_visible()
        await AgentHandle(scene.client, run.id).approve(held["approval_id"], by="kim")
        await expect(card(page, run.id)).to_contain_text("approved by kim")
        await expect(card(page, run.id).get_by_role("button", name="Approve")).to_have_count(0)


async def test_questions_and_a_used_up_budget_are_decided_in_their_cards(scene: Scene) -> None:
    year, colour = [await scene.loop.start(task) for task in (YEAR_TASK, COLOUR_TASK)]
    budget = await scene.loop.start(LOOK_TASK, max_iterations=1, on_exhausted="ask")
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open("/inbox")
        await expect(card(page, year.id).get_by_role("button")).to_have_text(["Answer"])
        await card(page, year.id).get_by_role("textbox").fill("1999")
        await page.keyboard.press("Enter")
        await card(page, colour.id).get_by_role("button", name="red").click()
        await expect(card(page, colour.id)).to_contain_text(f"answered by {OWNER}: red")
        await expect(card(page, budget.id).get_by_label("New max iterations")).to_have_value("2")
        await card(page, budget.id).get_by_role("button", name="Extend").click()
        results = [await run.result() for run in (year, colour, budget)]
    assert [result["termination"]["reason"] for result in results] == ["completed"] * 3
    assert "1999" in results[0]["output"]
    assert "red" in results[1]["output"]
    journal = [entry async for entry in read_journal(scene.client, colour.id)]
    [answered] = [entry.data for entry in journal if entry.event == "QuestionAnswered"]
    assert (answered["answer"], answered["by"]) == ("red", OWNER)


async def test_a_call_gets_its_result_or_its_failure_in_its_card(scene: Scene) -> None:
    fine, failed = [await scene.loop.start(CHECK_TASK) for _ in range(2)]
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open("/inbox")
        await expect(card(page, fine.id)).to_contain_text("Result of a call")
        await expect(card(page, fine.id)).to_contain_text("the result of check")
        await card(page, fine.id).get_by_role("textbox").fill('{"score": 640}')
        await card(page, fine.id).get_by_role("button", name="Complete").click()
        await expect(card(page, fine.id)).to_contain_text(f"completed by {OWNER}")
        await card(page, failed.id).get_by_role("textbox").fill("no such person")
        await card(page, failed.id).get_by_role("button", name="It failed").click()
        results = [await run.result() for run in (fine, failed)]
    assert '{"score":640}' in results[0]["output"]
    assert "JobFailed: no such person" in results[1]["output"]


async def test_long_arguments_are_unfolded_before_they_are_approved(scene: Scene) -> None:
    run = await held_run(scene, LONG_TASK)
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open("/inbox")
        approve = card(page, run).get_by_role("button", name="Approve")
        await expect(approve).to_be_disabled()
        await card(page, run).focus()
        await page.keyboard.press("a")
        await expect(card(page, run)).not_to_contain_text("approved by")
        await card(page, run).get_by_text("All arguments").click()
        await approve.click()
        await expect(card(page, run)).to_contain_text(f"approved by {OWNER}")
    assert await decisions(scene.client, run) == [(True, OWNER, "")]


async def test_the_list_finds_a_run_and_its_address_keeps_the_view(scene: Scene) -> None:
    run = await held_run(scene, "count the spoons")
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open("/")
        await page.keyboard.press("/")
        await page.keyboard.type("spoons")
        await expect(page.locator(".runs tbody tr")).to_have_count(1)
        await expect(page).to_have_url(f"{scene.console.base}/?text=spoons")
        await page.reload()
        await expect(page.locator(f'.runs a[href="/runs/{run}"]')).to_be_visible()
        await page.get_by_label("Select count the spoons").check()
        await page.get_by_role("button", name="Abort").click()
        await expect(page.get_by_role("dialog")).to_contain_text("count the spoons")
        await page.get_by_role("button", name="Abort 1").click()
        await expect(page.get_by_text("abort: 1 of 1 taken")).to_be_visible()
    result = await scene.client.get_workflow_handle(run).result()
    assert result["termination"]["reason"] == "aborted"


async def test_a_run_that_starts_appears_in_the_open_list(scene: Scene) -> None:
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open("/?text=teapot")
        await expect(page.get_by_text("No run fits these filters")).to_be_visible()
        run = await held_run(scene, "polish the teapot")
        await expect(page.locator(f'.runs a[href="/runs/{run}"]')).to_be_visible()


async def test_a_run_is_started_from_the_form_and_again_with_its_input(scene: Scene) -> None:
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open("/start")
        await page.get_by_label("Task", exact=True).fill("mend the kettle")
        limit = page.get_by_label("Max iterations").first
        await limit.fill("0")
        await page.reload()  # the unsent text is kept
        await page.get_by_role("button", name="Start the task").click()
        await expect(page.locator('[data-where="config.max_iterations"] .error')).to_be_visible()
        await limit.fill("7")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_url("**/runs/*")
        run_id = page.url.rpartition("/")[2]

        page = await visit.open(f"/start?again={run_id}")
        await expect(page.get_by_label("Task", exact=True)).to_have_value("mend the kettle")
        await page.get_by_role("button", name="JSON").click()
        shown = await page.get_by_label("The whole input as JSON").input_value()
    assert json.loads(shown) == {"task": "mend the kettle", "config": {"max_iterations": 7}}
    described = await scene.client.get_workflow_handle(run_id).describe()
    assert await described.memo_value(STARTED_BY_MEMO, "") == OWNER


@pytest.mark.parametrize("path", ["/", "/inbox", "/start", "/admin"])
async def test_pages_are_accessible(scene: Scene, path: str) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    if path == "/inbox":
        await held_run(scene)
    async with a_visit(scene.browser, scene.console) as visit:
        page = await visit.open(path)
        await page.wait_for_selector(".runs tbody tr, .wait, form, .settings")
        for width, scheme in product((1200, 360), schemes):
            await page.set_viewport_size({"width": width, "height": 800})
            await page.emulate_media(color_scheme=scheme)
            assert await axe_violations(page) == []
            assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_twelve_tabs_share_one_connection_and_its_successor(scene: Scene) -> None:
    async with a_visit(scene.browser, scene.console) as visit:
        pages = [await visit.open("/inbox") for _ in range(12)]
        first = await held_run(scene)
        await all_show(pages, first)
        await pages.pop(0).close()  # the leader
        second = await held_run(scene)
        await all_show(pages, second)


async def all_show(pages: list[Page], run_id: str) -> None:
    await asyncio.gather(*(expect(card(page, run_id)).to_be_visible(timeout=15_000) for page in pages))
