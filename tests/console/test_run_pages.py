"""The pages of a run, a chat and a comparison in a real browser, with a real console, server and worker."""

import re
from typing import Literal
from uuid import uuid4

from playwright.async_api import expect

from orga.client.console.doors import cookie_name
from orga.client.runs.listing import read_input
from orga.testing import ScriptedModel, answers
from tests.console.stage import HOSTILE, STREAMED, Stage
from tests.support.browser import a_visit, axe_violations
from tests.support.console import OWNER
from tests.support.hold import wait_until
from tests.support.runs.approvals import wait_for_held_calls
from tests.support.runs.goals import start as start_goal
from tests.support.runs.loop import Loop
from tests.support.runs.questions import send_update
from tests.support.runs.sessions import begin


async def test_a_run_is_answered_approved_and_steered_on_its_page(stage: Stage) -> None:
    run = await stage.loop.start(f"do: ask look pay stream:walk answer\n{HOSTILE}")
    async with a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"/runs/{run.id}")
        await page.get_by_role("button", name="The blue one").click()
        await expect(page.locator(".wait .call")).to_have_text("pay", timeout=15_000)
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator(".flight-text")).to_contain_text(STREAMED, timeout=15_000)
        await expect(page.locator(".flight .thinking")).to_contain_text("cheaper elsewhere")
        await page.get_by_role("button", name="Steer", exact=True).click()
        await page.get_by_label("Guidance").fill("Mind the colour.")
        await page.get_by_role("dialog").get_by_role("button", name="Steer").click()
        await expect(page.locator(".acts")).to_contain_text("received")
        await page.reload()
        await expect(page.locator(".acts")).to_contain_text("Mind the colour. received")
        await expect(page.locator(".flight-text")).to_contain_text(STREAMED)
        stage.model.hold("walk").go.set()
        await expect(page.locator(".acts")).to_contain_text(re.compile(r"applied in \w+ of iteration \d+ after"))
        await expect(page.locator(".run-state")).to_contain_text("completed")
        await page.get_by_role("tab", name="Result").click()
        await expect(page.locator(".answer h3")).to_have_text("Done")
        await page.get_by_role("tab", name="Timeline").click()
        await page.locator("[data-number='2'] .it-number").click()
        await expect(page.locator("[data-number='2'] .call-details")).to_contain_text("a lamp")
        await expect(page).to_have_url(re.compile("open=2"))
        for shown, numbers in {"tool:look": ["2"], "denied": ["3"], "failed": []}.items():
            await page.get_by_label("Show only").select_option(shown)
            await expect(page.locator(".its > .it .it-number")).to_have_text(numbers)
        await page.get_by_role("button", name="Show all").click()
        await page.get_by_label("Search all texts").fill("I look now")
        await page.keyboard.press("Enter")
        await expect(page.locator(".its > .it .it-number")).to_have_text(["2"])
        await expect(page.locator(".it-excerpt").first).to_contain_text("I look now")
    [answered] = await stage.journal(run.id, "QuestionAnswered")
    approved = (await stage.journal(run.id, "ApprovalResolved"))[0]
    [applied] = await stage.journal(run.id, "InterventionApplied")
    assert (answered["answer"], answered["by"], approved["approver"]) == ("The blue one", OWNER, OWNER)
    assert (applied["kind"], applied["by"]) == ("steer", OWNER)


async def test_a_page_names_its_run_before_its_scripts_have_run(stage: Stage) -> None:
    run = await stage.loop.start(f"do: answer {HOSTILE}")
    context = await stage.browser.new_context(java_script_enabled=False)
    base, token = stage.console.base, stage.console.console.doors.token
    await context.add_cookies([{"name": cookie_name(base), "value": token, "url": base}])
    page = await context.new_page()

    async def names_it() -> bool:
        """A page does not wait for a slow server, so its name may come with the scripts only."""
        await page.goto(f"{base}/runs/{run.id}")
        return "do: answer <script>" in await page.get_by_role("heading", level=1).inner_text()

    await wait_until(names_it)
    await context.close()


async def test_data_of_a_result_are_shown_against_their_schema(stage: Stage) -> None:
    keys = {"paid": {"type": "boolean"}, "cents": {"type": "integer"}, "lamp": {"type": "string"}}
    schema = {"type": "object", "properties": keys, "required": ["paid"]}
    run = await stage.loop.start({"task": "do: data", "output_schema": schema})
    await run.result()
    async with a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"/runs/{run.id}?tab=result")
        data = page.get_by_role("region", name="Data")
        await expect(data.get_by_role("row")).to_have_text(
            ["KeyTypeFitsValue", "paidbooleanyestrue", "centsintegeryes250", "lampstringyes–"]
        )


STATES = {
    "asked": ("ask", ".wait", "Which lamp?"),
    "held": ("pay", ".wait", "pay"),
    "streaming": ("stream:state", ".flight-text", STREAMED),
    "completed": ("answer", ".answer", "Done"),
    "out of iterations": ("look look look", ".run-state", "max iterations"),
}


async def test_each_state_is_there_again_after_a_reload(stage: Stage) -> None:
    started = {name: await stage.loop.start(f"do: {do}", max_iterations=2) for name, (do, _, _) in STATES.items()}
    async with a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"/runs/{started['completed'].id}")
        for name, run in started.items():
            _, where, text = STATES[name]
            for _ in range(2):
                await page.goto(f"{stage.console.base}/runs/{run.id}")
                await expect(page.locator(where).first).to_contain_text(text, timeout=15_000)
    stage.model.hold("state").go.set()


async def test_a_run_is_paused_resumed_and_aborted_by_keyboard(stage: Stage) -> None:
    run = await stage.loop.start("do: pay answer")
    await wait_for_held_calls(run)
    async with a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"/runs/{run.id}")
        for act in ("Pause", "Resume"):
            await page.get_by_role("button", name=act, exact=True).focus()
            await page.keyboard.press("Enter")
            await expect(page.locator(".acts")).to_contain_text(act.lower())
        await page.locator(".menu summary").focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Abort", exact=True).focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_contain_text("stays done")
        await page.get_by_label("Reason", exact=True).fill("wrong lamp")
        await page.keyboard.press("Control+Enter")
        await expect(page.locator(".run-state")).to_contain_text("aborted")
        await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    kinds = [each["kind"] for each in await stage.journal(run.id, "InterventionReceived")]
    assert kinds == ["pause", "resume", "abort"]


async def test_a_run_without_a_worker_says_how_to_start_one(stage: Stage) -> None:
    run = await Loop(stage.client, f"nobody-{uuid4()}", ScriptedModel([answers()])).start()
    async with a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"/runs/{run.id}")
        await expect(page.locator(".trouble")).to_contain_text("orga worker")
    await run.terminate()


async def test_a_chat_goes_on_with_a_run_streams_waits_and_keeps_what_is_not_sent(stage: Stage) -> None:
    before = await stage.loop.start("say hello")
    await before.result()
    async with a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"/runs/{before.id}")
        await page.locator(".menu summary").click()
        await page.get_by_role("link", name="Go on with this run").click()
        await page.get_by_label("Your first message").fill(f"do: look pay stream:chat {HOSTILE}")
        await page.keyboard.press("Enter")
        await page.wait_for_url(re.compile(r"/chat/(?!new)"))
        await page.get_by_role("button", name="Approve").click(timeout=15_000)
        await expect(page.locator(".flight-text")).to_contain_text(STREAMED, timeout=15_000)
        await page.get_by_label("Message", exact=True).fill("do: answer")
        await page.reload()
        await expect(page.get_by_label("Message", exact=True)).to_have_value("do: answer")
        await page.get_by_label("Message", exact=True).press("End")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("soon")
        await expect(page.get_by_label("Message", exact=True)).to_have_value("do: answer\nsoon")
        await page.keyboard.press("Enter")
        await expect(page.locator(".is-queued")).to_contain_text("do: answer")
        stage.model.hold("chat").go.set()
        await expect(page.locator(".reply").last).to_contain_text("paid", timeout=15_000)
        await expect(page.locator(".is-queued")).to_have_count(0)
        await page.locator(".chat-calls summary").first.click()
        await expect(page.locator(".chat-calls .call-details")).to_contain_text("a lamp")
        await expect(page.locator(".said", has_text="say hello")).to_have_count(1)
        await expect(page.locator(".said-by", has_text="Agent")).to_have_count(2)  # one for each turn
        session = page.url.rpartition("/")[2]
    turns = await stage.journal(session, "TurnEnded")
    assert [turn["reason"] for turn in turns] == ["completed", "completed"]


async def test_a_turn_is_stopped_and_a_goal_is_started_from_a_chat(stage: Stage) -> None:
    session = await begin(stage.loop)
    await session.post("do: stream:stop")
    async with a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"/chat/{session.id}")
        await expect(page.locator(".flight-text")).to_contain_text(STREAMED, timeout=15_000)
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".note")).to_contain_text("interrupted")
        await page.get_by_role("button", name="As a goal").click()
        await page.get_by_label("Message", exact=True).fill("find a lamp")
        await page.keyboard.press("Enter")
        await expect(page.locator(".goal-turn .reply")).to_contain_text("the final answer", timeout=20_000)
        await expect(page.locator(".said", has_text="Its answer")).to_have_count(1)
        await page.reload()
        await expect(page.locator(".goal-turn .reply")).to_contain_text("the final answer")
    guided = [each for each in await stage.journal(session.id, "InterventionReceived") if each["kind"] == "add_context"]
    assert [each["by"] for each in guided] == [OWNER]
    await session.close()


async def test_a_run_is_forked_compared_and_rewound_from_its_timeline(stage: Stage) -> None:
    origin = await stage.loop.start("do: look pay answer")
    [held] = await wait_for_held_calls(origin)
    await send_update(origin, "approve", {"approval_id": held["approval_id"], "approver": OWNER})
    await origin.result()
    async with a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"/runs/{origin.id}?tab=timeline&open=1")
        await page.get_by_role("button", name="Fork from here").click()
        await page.get_by_label("Another task for it").fill("do: look answer")
        await page.get_by_label("Another model").fill("scripted:other")
        await page.get_by_role("dialog").get_by_role("button", name="Fork").click()
        await page.wait_for_url(lambda url: "/runs/" in url and origin.id not in url)
        await expect(page.locator(".run-state")).to_contain_text("completed", timeout=15_000)
        forked = stage.client.get_workflow_handle(page.url.rpartition("/")[2].partition("?")[0])
        assert (await read_input(stage.client, await forked.describe()))["model"] == "scripted:other"
        await expect(
            page.get_by_role("link", name=f"forked from {origin.id} at iteration 1 by {OWNER}")
        ).to_be_visible()
        await expect(page.locator(".acts")).to_contain_text(f"{OWNER} forked at iteration 1")
        await page.get_by_role("link", name="compare").click()
        await expect(page.get_by_text("is a fork of A at iteration 1")).to_be_visible()
        await expect(page.locator(".pairs > .pair").first).to_be_visible()
        await page.get_by_text("1 in common").click()
        await expect(page.locator(".is-common")).to_contain_text("look")

        await page.goto(f"{stage.console.base}/runs/{origin.id}?tab=timeline&open=1")
        await page.get_by_role("button", name="Rewind to here").click()
        await expect(page.get_by_role("dialog")).to_contain_text("pay")
        await page.get_by_role("dialog").get_by_role("button", name="Rewind").click()
        await page.get_by_role("button", name="Approve").click(timeout=15_000)
        await expect(page.locator(".run-state")).to_contain_text("completed", timeout=15_000)
        await expect(page.locator(".acts")).to_contain_text(f"{OWNER} rewound")


async def test_pages_are_accessible(stage: Stage) -> None:
    held = await stage.loop.start(f"do: look pay\n{HOSTILE}")
    await wait_for_held_calls(held)
    goal = await start_goal(stage.loop)
    session = await begin(stage.loop)
    await session.send("do: look")
    await goal.result()
    pages = {
        f"/runs/{held.id}?open=1&tab=timeline": ".it-details dl",
        f"/chat/{session.id}": ".reply",
        f"/compare?a={held.id}&b={goal.id}": ".pair",
        f"/runs/{goal.id}?tab=plan&plan=graph": ".plan-node",
        f"/runs/{goal.id}?tab=plan&plan=list": ".plan-row",
        f"/runs/{goal.id}?tab=result": ".answer",
        f"/runs/{held.id}?tab=sees": ".message",
    }
    looks: tuple[tuple[int, Literal["light", "dark"]], ...] = ((360, "dark"), (1200, "light"))
    both = [(path, look) for path in list(pages)[:2] for look in looks]
    found: list[str] = []
    async with a_visit(stage.browser, stage.console) as visit:
        for path, (width, scheme) in [*both, *zip(list(pages)[2:], looks * 3, strict=False)]:
            page = await visit.open(path, width=width, scheme=scheme)
            await page.wait_for_selector(pages[path], state="attached")
            found += [f"{path} {width} {scheme}: {each}" for each in await axe_violations(page)]
            if await page.evaluate("document.documentElement.scrollWidth") > width:
                found.append(f"{path} is wider than {width}")
            await page.close()
    assert found == []
