"""Makes the pictures of the console in docs/pictures, from real runs. Only `make console-pictures` runs it."""

import re
from functools import partial
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, expect
from temporalio.client import Client

from orga.activities.ports import ModelRequest
from orga.client.past.fork import fork
from orga.client.runs.agents import AgentHandle
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls, together
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply
from orga.workflows.types.record import replace_fields
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.browser import a_visit
from tests.support.console import a_console
from tests.support.hold import Hold, wait_until
from tests.support.model.goals import a_step, evaluation_reply, says
from tests.support.runs.approvals import Asks
from tests.support.runs.goals import start as start_goal
from tests.support.runs.loop import a_loop
from tests.support.runs.sessions import begin

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
FACTS = Setup(agent="", model="", search_attributes=True)
AGENTS = {
    "default": AgentConfig(tools=("read_file", "search_text", "restart_service", "ask_user")),
    "archivist": AgentConfig(tools=("read_file", "search_text", "count_offers")),
}
IMPORT, OFFERS, LINKS = (
    "Why did the nightly import stop? Restart it if that is safe",
    "Compare the offers",
    "Check all links",
)
CONTRACT, NOTES, KEYS = "Find where the handbook contradicts the contract", "Draft the release notes", "List old keys"
PAGES = "Name the pages, too"
CHAT = "Does the contract allow us to keep old offers?"
GOAL = "Report how long we keep offers, with all places that disagree"
TENANT = "harbour"
STEPS = (
    a_step("survey", "search_text", text="keep offers") | {"goal": "Find all places that name a retention time"},
    a_step("contract", "read_file", "survey", path="contract.md") | {"goal": "Read what the contract demands"},
    a_step("handbook", "read_file", "survey", path="handbook.md") | {"goal": "Read what the handbook allows"},
    a_step("practice", "count_offers", "survey") | {"goal": "Count the offers that are older than 90 days"},
    a_step("compare", "search_text", "contract", "handbook", text="days") | {"goal": "List where both disagree"},
    a_step("report", "read_file", "compare", "practice", path="report.md") | {"goal": "Write the report"},
)


class Holds(Asks):
    """Holds restarts for a person."""

    async def judge(self, proposal: GateRequest) -> Verdict:
        verdict = await super().judge(proposal)
        return replace_fields(verdict, {"reason": "a restart in production needs a person"})


def reply(request: ModelRequest) -> Reply:
    """Plan and score a goal, or read, then do what the task is about."""
    asked = request.messages[-1].text
    if (turn := goal_prompt_in(asked)) == "goal_plan":
        return says(steps=STEPS)
    if turn == "goal_evaluate":
        scores = {"relevance": 5, "completeness": 4, "usability": 5, "goal_progress": 4}
        return evaluation_reply(*re.findall(r"^- (\S+): ", asked, re.MULTILINE), **scores)
    if turn == "goal_decide":
        return says(action="continue", confidence=0.9)
    task = next(message.text for message in request.messages if message.role == "user")
    steps = sum(message.role == "assistant" for message in request.messages)
    if steps == 0:
        return together(
            calls("search_text", text="import-nightly", reply_text="I look at what is written about it first."),
            calls("read_file", path="notes/2026-11.md"),
        )
    if IMPORT in task and steps == 1:
        text = "The disk was full until 03:10 and is at 41 % now, so a restart is safe."
        return calls("restart_service", name="import-nightly", host="batch-2", wait_s=30, reply_text=text)
    if OFFERS in task and steps == 1:
        question = "Which delivery date counts: the one in the letter, or the one in the attachment?"
        return calls("ask_user", question=question, options=["3 December, the letter", "12 December, the attachment"])
    if LINKS in task and steps < 3:
        return calls("read_file", path=f"docs/page-{steps}.md", reply_text=f"Page {steps} has no broken link.")
    if any(PAGES in message.text for message in request.messages):
        return answers("Section 4 of the handbook (page 12) allows 90 days, the contract (page 3) 30.")
    return answers("Section 4 of the handbook allows 90 days, the contract 30. **The contract counts.**")


async def waits(run: AgentHandle) -> bool:
    return bool((await run.status()).waiting)


async def test_pictures(client: Client, browser: Browser) -> None:
    await register_missing(client)
    read = FakeTool("read_file", "03:10 import-nightly: no space left on device\n03:12 disk cleaned, 41 % used")
    counting = Hold()
    tools = (
        read,
        FakeTool("search_text", "notes/2026-11.md:14"),
        FakeTool("restart_service", effect="irreversible"),
        FakeTool("count_offers", lambda arguments, context: counting.then("14 offers")),
    )
    engine = Holds(("restart_service",), approvers=("ann", "mara"))
    async with (
        a_loop(client, [reply], *tools, engine=engine, setup=FACTS, agents=AGENTS) as loop,
        a_console(client, loop.task_queue) as console,
        a_visit(browser, console) as visit,
    ):
        contract = await loop.start({"task": CONTRACT, "tenant": TENANT})
        await contract.result()
        await (await loop.start({"task": NOTES, "tenant": TENANT})).result()
        forked = await fork(client, contract.id, 1, task=f"{CONTRACT}. {PAGES}")
        await forked.result()
        session = await begin(loop)
        await session.send(CHAT)
        keys = await loop.start({"task": KEYS, "tenant": TENANT}, max_iterations=1)
        await keys.result()
        goal = await start_goal(loop, GOAL, agent="archivist")
        asked = await loop.start({"task": OFFERS, "tenant": TENANT})
        stopped = await loop.start({"task": LINKS, "tenant": TENANT}, max_iterations=2, on_exhausted="ask")
        held = await loop.start({"task": IMPORT, "tenant": TENANT})
        for run in (asked, stopped, held):
            await wait_until(partial(waits, AgentHandle(client, run.id)))
        await counting.reached()
        looks: tuple[tuple[str, str, int, Literal["light", "dark"]], ...] = (
            ("runs", "/", 1200, "light"),
            ("runs-dark", "/", 1200, "dark"),
            ("inbox", "/inbox", 1200, "dark"),
            ("inbox-phone", "/inbox", 390, "light"),
            ("run", f"/runs/{held.id}", 1200, "light"),
            ("start", "/start", 1200, "light"),
            ("chat", f"/chat/{session.id}", 1200, "dark"),
            ("plan", f"/runs/{goal.id}?tab=plan&step=practice", 1200, "light"),
            ("compare", f"/compare?a={contract.id}&b={forked.id}", 1200, "light"),
            ("admin", "/admin?view=tools", 1200, "light"),
        )
        for name, path, width, scheme in looks:
            page = await visit.open(path, width=width, scheme=scheme)
            await expect(page.get_by_text("live", exact=True)).to_be_visible()
            await page.wait_for_timeout(1_000)  # for what comes by the stream
            await page.screenshot(path=PICTURES / f"console-{name}.png")
            await page.close()
        counting.go.set()
