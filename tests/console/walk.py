"""The walk: each control of a run's page in each state, by click and by keyboard alone.

It takes minutes, so only `make console-test` runs it.

After each act the journal has it with the person's name, and the page reports where it took effect, also after a
reload.
"""

import re
from typing import Any, Literal, NamedTuple

import pytest
from playwright.async_api import Locator, Page, ViewportSize, expect
from temporalio.client import Client

from orga.client.history.values import data_converter
from orga.client.journal.reading import read_journal
from orga.workflows.types.status import JournalEntry
from tests.console.stage import ENDINGS, LIVE, Live, Stage, a_defect, end, ended_as, in_state, wait_until_stuck
from tests.support.browser import a_visit
from tests.support.console import OWNER, a_console
from tests.support.hold import wait_until
from tests.support.runs.questions import is_on_record
from tests.support.web.cut_connection import a_way

By = Literal["click", "key"]
WAYS: tuple[By, ...] = ("click", "key")
MOST_TABS = 150
GUIDANCE = "Mind the colour."
TALL: ViewportSize = {"width": 1200, "height": 6_000}
"""Rows that are out of sight are not drawn."""


async def tab_to(page: Page, target: Locator) -> None:
    """Move the focus to an element by the Tab key alone."""
    await expect(target).to_have_count(1)
    for _ in range(MOST_TABS):
        if await target.evaluate("element => element === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"the Tab key does not reach {target}")


async def press(page: Page, target: Locator, by: By) -> None:
    if by == "click":
        await target.click()
    else:
        await tab_to(page, target)
        await page.keyboard.press("Enter")


async def fill(page: Page, target: Locator, text: str, by: By) -> None:
    if by == "click":
        await target.fill(text)
    else:
        await tab_to(page, target)
        await page.keyboard.press("Control+a")
        await page.keyboard.type(text)


class Act(NamedTuple):
    """An act on the page of a run."""

    label: str
    """The button that begins it."""
    fields: tuple[tuple[str, str], ...] = ()
    """The fields of its dialog. There is no dialog if there are none."""
    submit: str = ""
    """The button of the dialog, by default named as the first one."""
    is_in_menu: bool = True
    is_at_once: bool = False
    """True if the run applies it at once, and not only after it continues."""

    async def do(self, page: Page, by: By) -> None:
        if self.is_in_menu:
            await press(page, page.locator(".menu summary"), by)
        await press(page, page.locator(".run-controls").get_by_role("button", name=self.label, exact=True), by)
        dialog = page.get_by_role("dialog")
        for name, text in self.fields:
            await fill(page, dialog.get_by_label(name, exact=True), text, by)
        if self.fields and by == "key":
            await page.keyboard.press("Control+Enter")
        elif self.fields:
            await dialog.get_by_role("button", name=self.submit or self.label, exact=True).click()


ACTS = {
    "pause": Act("Pause", is_in_menu=False),
    "resume": Act("Resume", is_in_menu=False, is_at_once=True),
    "steer": Act("Steer", (("Guidance", GUIDANCE),), is_in_menu=False),
    "add_context": Act("Add context", (("Context", GUIDANCE),)),
    "override_step": Act(
        "Override the next step", (("Tool or agent", "look"), ("Input", '{"at": 1}')), is_at_once=True
    ),
    "abort": Act("Abort", (("Reason", GUIDANCE),), "Abort the run", is_at_once=True),
}
EXTEND = Act("Extend budgets", (("max iterations", "50"),))

APPLIED: dict[tuple[str, str], str] = {
    ("planning", "pause"): "planning of iteration 1",
    ("planning", "steer"): "executing of iteration 2",
    ("planning", "add_context"): "executing of iteration 2",
    ("planning", "abort"): "planning of iteration 0",
    ("evaluating", "pause"): "evaluating of iteration 3",
    ("evaluating", "steer"): "deciding of iteration 4",
    ("evaluating", "add_context"): "deciding of iteration 4",
    ("evaluating", "override_step"): "evaluating of iteration 2",
    ("evaluating", "abort"): "evaluating of iteration 2",
    ("reasoning", "pause"): "reasoning of iteration 2",
    ("reasoning", "steer"): "reasoning of iteration 3",
    ("reasoning", "add_context"): "reasoning of iteration 3",
    ("reasoning", "abort"): "reasoning of iteration 1",
    ("acting", "pause"): "acting of iteration 2",
    ("acting", "steer"): "reasoning of iteration 3",
    ("acting", "add_context"): "reasoning of iteration 3",
    ("acting", "abort"): "acting of iteration 2",
    ("held", "pause"): "gating of iteration 2",
    ("held", "steer"): "reasoning of iteration 3",
    ("held", "add_context"): "reasoning of iteration 3",
    ("held", "abort"): "gating of iteration 2",
    ("asked", "pause"): "acting of iteration 2",
    ("asked", "steer"): "reasoning of iteration 3",
    ("asked", "add_context"): "reasoning of iteration 3",
    ("asked", "abort"): "acting of iteration 2",
    ("paused", "resume"): "reasoning of iteration 2",
    ("paused", "steer"): "reasoning of iteration 3",
    ("paused", "add_context"): "reasoning of iteration 3",
    ("paused", "abort"): "reasoning of iteration 2",
    ("out of budget", "pause"): "acting of iteration 1",
    ("out of budget", "steer"): "reasoning of iteration 2",
    ("out of budget", "add_context"): "reasoning of iteration 2",
    ("out of budget", "abort"): "acting of iteration 1",
    ("escalated", "pause"): "acting of iteration 1",
    ("escalated", "steer"): "reasoning of iteration 2",
    ("escalated", "add_context"): "reasoning of iteration 2",
    ("escalated", "abort"): "acting of iteration 1",
    ("without a worker", "pause"): "preparing of iteration 0",
    ("without a worker", "steer"): "reasoning of iteration 1",
    ("without a worker", "add_context"): "reasoning of iteration 1",
    ("without a worker", "abort"): "preparing of iteration 0",
}
"""The phase in which each act takes effect, by the state of the run and the kind of the act."""


def rows() -> list[object]:
    return [
        pytest.param(state, kind, by, id=f"{kind.replace('_', ' ')} while {state}, by {by}")
        for state, kind in APPLIED
        for by in WAYS
    ]


@pytest.mark.parametrize(("state", "kind", "by"), rows())
async def test_an_act_is_applied_and_reported(stage: Stage, state: str, kind: str, by: By) -> None:
    place = APPLIED[state, kind]
    act, is_at_once = ACTS[kind], ACTS[kind].is_at_once and LIVE[state].has_worker
    async with in_state(stage, state) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(run.path)
        await act.do(page, by)
        sent, recorded = page.locator(".run-sent"), page.locator(".acts > .act", has_text=f"applied in {place}")
        if not is_at_once:
            await expect(sent).to_contain_text(re.compile("it takes effect at the run's next phase|it counts when one"))
            await LIVE[state].go_on(stage, run)
        await expect(sent).to_contain_text(f"applied in {place}", timeout=15_000)
        await expect(recorded).to_have_count(1)
        await page.reload()
        await expect(recorded).to_contain_text(OWNER)
        [received], [applied] = [
            await _sent(stage, run, f"Intervention{step}", kind) for step in ("Received", "Applied")
        ]
    assert (received["kind"], received["by"], applied["by"]) == (kind, OWNER, OWNER)
    assert f"{applied['phase']} of iteration {applied['iteration']}" == place
    if act.fields and kind != "override_step":
        assert received["text"] == GUIDANCE


async def _sent(stage: Stage, run: Live, event: str, kind: str) -> list[dict[str, Any]]:
    """Return the entries about an act of this kind that was sent from the page."""
    return [data for data in await stage.journal(run.id, event) if data["kind"] == kind and data.get("id")]


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("state", [name for name in LIVE if LIVE[name].has_worker])
async def test_budgets_are_extended(stage: Stage, state: str, by: By) -> None:
    async with in_state(stage, state) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(run.path)
        await EXTEND.do(page, by)
        await expect(page.locator(".run-sent")).to_contain_text("applied")
        if state != "out of budget":
            await expect(page.get_by_role("meter", name="iterations")).to_have_attribute("aria-valuemax", "50")
        await page.reload()
        await expect(page.locator(".acts > .act", has_text="extended").first).to_contain_text(
            f"{OWNER} extended max_iterations 50"
        )
        received = (await stage.journal(run.id, "InterventionReceived"))[-1]
    assert (received["kind"], received["by"], received["text"]) == ("extend_budget", OWNER, {"max_iterations": 50})


class Decision(NamedTuple):
    """A decision on the card of what waits, and its entry in the journal."""

    state: str
    buttons: tuple[str, ...]
    """The buttons that are pressed, one after the other."""
    keys: tuple[str, ...]
    """The keys that do the same, after the card has the focus by `j`. Empty: the buttons are reached by the Tab key."""
    event: str
    fields: dict[str, object]
    """The expected fields of the entry."""
    text: str = ""
    """The text to type into the card's field first."""


DECISIONS: dict[str, Decision] = {
    "approve": Decision("held", ("Approve",), ("a",), "ApprovalResolved", {"approved": True, "approver": OWNER}),
    "deny": Decision(
        "held",
        ("Deny",),
        ("d", "too dear", "Enter"),
        "ApprovalResolved",
        {"approved": False, "approver": OWNER, "reason": "too dear"},
        "too dear",
    ),
    "an option": Decision("asked", ("The blue one",), (), "QuestionAnswered", {"answer": "The blue one", "by": OWNER}),
    "retry": Decision("escalated", ("Retry",), (), "ApprovalResolved", {"choice": "retry", "by": OWNER}),
    "skip": Decision("escalated", ("Skip",), (), "ApprovalResolved", {"choice": "skip", "by": OWNER}),
    "give a result": Decision(
        "escalated", ("Result",), (), "ApprovalResolved", {"choice": "result", "by": OWNER}, "It lies there."
    ),
    "abort at an escalation": Decision(
        "escalated", ("Abort", "Abort the run"), (), "ApprovalResolved", {"choice": "abort", "by": OWNER}
    ),
    "extend": Decision(
        "out of budget", ("Extend",), (), "InterventionReceived", {"text": {"max_iterations": 2}, "by": OWNER}
    ),
    "end at the limit": Decision(
        "out of budget", ("End at the limit",), (), "ApprovalResolved", {"choice": "skip", "by": OWNER}
    ),
    "abort at the limit": Decision(
        "out of budget", ("Abort", "Abort the run"), (), "ApprovalResolved", {"choice": "abort", "by": OWNER}
    ),
}


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("name", DECISIONS)
async def test_a_wait_is_decided_in_its_card(stage: Stage, name: str, by: By) -> None:
    decision = DECISIONS[name]
    async with in_state(stage, decision.state) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(run.path)
        card = page.locator(".wait")
        await expect(card).to_have_count(1)
        if by == "key":
            await page.keyboard.press("j")
        if by == "key" and decision.keys:
            for key in decision.keys:
                await (page.keyboard.press(key) if len(key) == 1 or key == "Enter" else page.keyboard.type(key))
        else:
            if decision.text:
                await fill(page, card.get_by_role("textbox"), decision.text, by)
            first, *rest = decision.buttons
            await press(page, card.get_by_role("button", name=first, exact=True), by)
            for button in rest:
                await press(page, page.get_by_role("dialog").get_by_role("button", name=button, exact=True), by)
        await expect(card.first).to_contain_text(f"by {OWNER}")
        await wait_until(lambda: _has_entry(stage, run, decision))
        await page.reload()
        await expect(page.locator(".acts")).to_contain_text(OWNER)


async def _has_entry(stage: Stage, run: Live, decision: Decision) -> bool:
    return any(decision.fields.items() <= data.items() for data in await stage.journal(run.id, decision.event))


ALWAYS = {"Steer", "Add context", "Extend budgets", "Rewind", "Fork", "Abort"}
CONTROLS = {
    **{state: {"Pause"} for state in LIVE},
    "paused": {"Resume"},
    "evaluating": {"Pause", "Override the next step"},
}
"""The controls of a state besides `ALWAYS`."""
ELSEWHERE = {"Print", "Copy"}


async def controls_of(page: Page) -> tuple[set[str], dict[str, str]]:
    """Return the labels of the enabled controls, and the disabled ones with their reasons."""
    enabled, disabled = set[str](), dict[str, str]()
    for button in await page.locator(".run-controls button").all():
        label = ((await button.text_content()) or "").partition(":")[0]
        if await button.get_attribute("aria-disabled") is None:
            enabled.add(label)
        else:
            disabled[label] = await button.get_attribute("title") or ""
    return enabled - ELSEWHERE, disabled


@pytest.mark.parametrize("state", LIVE)
async def test_a_state_offers_what_makes_sense_in_it(stage: Stage, state: str) -> None:
    async with in_state(stage, state) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(run.path)
        await expect(page.locator(".run-state")).to_contain_text(LIVE[state].shown)
        await expect(page.locator(LIVE[state].where)).to_contain_text(LIVE[state].text)
        assert await controls_of(page) == (ALWAYS | CONTROLS[state], {})


IN_FIELDS = {"ReasoningComplete", "PolicyEvaluated", "ToolsDispatched", "ObservationsCollected"}
"""Entries that a row shows as its reply and its calls. The verdict on an answer is an event: its place has no dot."""


def is_event(entry: JournalEntry) -> bool:
    places: list[str] = entry.data.get("places") or ["1.0"]
    return entry.event not in IN_FIELDS or not any("." in place for place in places)


async def expect_journal(stage: Stage, run_id: str, page: Page) -> None:
    """The timeline, whose rows are open, has each iteration and each entry of the journal once, in the same order."""
    entries = [entry async for entry in read_journal(stage.client, run_id)]
    expected = [entry.event for entry in entries if is_event(entry)]
    shown = page.locator(".it-details .events > details > summary .faint")
    await expect(shown).to_have_text([re.compile(f"^{event} ") for event in expected])
    numbers = [int(await row.get_attribute("data-number") or "") for row in await page.locator(".its > li").all()]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) - len({entry.iteration for entry in entries}) in {0, 1}, "besides the one under way"


TABS = {"Result": "5", "Timeline": "2"}
"""The views of a run and their keys."""


async def show(page: Page, tab: str, by: By) -> None:
    if by == "click":
        await page.get_by_role("tab", name=tab).click()
    else:
        await page.keyboard.press(TABS[tab])


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("name", ENDINGS)
async def test_an_ended_run_shows_how_and_offers_a_new_beginning(stage: Stage, name: str, by: By) -> None:
    ending = ENDINGS[name]
    async with ended_as(stage, name) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"{run.path}?open=0,1,2,3,4,5")
        await page.set_viewport_size(TALL)
        await expect(page.locator(".run-state")).to_contain_text(ending.state)
        await expect(page.locator(".run-state")).to_contain_text(ending.detail)
        assert await controls_of(page) == ({"Rewind", "Fork"}, {})
        await expect(page.locator(".wait")).to_have_count(0)
        await show(page, "Result", by)
        shown = ".facts" if ending.has_result else ".panel-result .state"
        await expect(page.locator(shown).first).to_be_visible()
        await show(page, "Timeline", by)
        await expect_journal(stage, run.id, page)
        [ended] = await stage.journal(run.id, "Terminated")
        assert ended["reason"] == (ending.reason or ending.state.replace(" ", "_"))
        await page.goto(f"{stage.console.base}/?text={run.id}")
        await expect(page.locator(".runs tbody tr")).to_contain_text(ending.state)


REWIND = Act("Rewind", (("Last iteration to keep", "{}"),))
FORK = Act("Fork", (("Last iteration of the common past", "{}"),))
KEPT = {"planning": 0, "escalated": 0, "out of budget": 0}
"""The iteration to go back to, by the state of a live run. Those that are not listed go back to the first."""


async def leap(page: Page, act: Act, to: int, by: By) -> None:
    """Rewind or fork to the end of an iteration. If calls cannot be undone, the page asks once more."""
    [(field, _)] = act.fields
    await act._replace(fields=((field, str(to)),)).do(page, by)
    dialog = page.get_by_role("dialog")
    asks_again = page.get_by_text("Press the button again")
    await expect(dialog.filter(has_not=asks_again)).to_have_count(0)
    if await asks_again.count():
        again = dialog.get_by_role("button", name=act.label)
        await (again.click() if by == "click" else page.keyboard.press("Control+Enter"))
    await expect(dialog).to_have_count(0)


async def fork_from(stage: Stage, page: Page, run_id: str, to: int, by: By) -> str:
    """Fork a run on its page. The fork's page shows where it comes from, and the run has stayed as it was."""
    before = [entry.hash async for entry in read_journal(stage.client, run_id)]
    await leap(page, FORK, to, by)
    await page.wait_for_url(lambda url: "/runs/" in url and run_id not in url)
    fork_id = page.url.rpartition("/")[2].partition("?")[0]
    source = f"forked from {run_id} at iteration {to} by {OWNER}"
    await expect(page.get_by_role("link", name=source)).to_be_visible()
    await expect(page.locator(".acts")).to_contain_text(f"{OWNER} forked at iteration {to}")
    [started] = await stage.journal(fork_id, "Started")
    origin = started["forked_from"]
    assert (origin["workflow_id"], origin["iteration"]) == (run_id, to)
    assert [entry.hash async for entry in read_journal(stage.client, run_id)] == before
    return fork_id


async def rewind_on(stage: Stage, page: Page, run_id: str, to: int, by: By) -> None:
    """Rewind a run on its page, which then shows who did it, also after a reload."""
    await leap(page, REWIND, to, by)
    done = page.locator(".acts > .act", has_text=f"{OWNER} rewound")
    await expect(done).to_contain_text(f"in iteration {to}" if to else "before iteration 1", timeout=15_000)
    await page.reload()
    await expect(done).to_have_count(1)
    [received] = [each for each in await stage.journal(run_id, "InterventionReceived") if each["kind"] == "rewind"]
    assert (received["by"], received["to_iteration"]) == (OWNER, to)


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("state", [name for name in LIVE if LIVE[name].has_worker])
async def test_a_live_run_is_forked_and_rewound(stage: Stage, state: str, by: By) -> None:
    shown, to = LIVE[state].shown, KEPT.get(state, 1)
    async with in_state(stage, state) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"{run.path}?open=0,1,2,3")
        await expect(page.locator(".run-state")).to_contain_text(shown)
        fork_id = await fork_from(stage, page, run.id, to, by)
        await expect(page.locator(".run-state")).to_contain_text("completed" if state == "paused" else shown)
        await end(stage, fork_id)
        await page.goto(f"{stage.console.base}{run.path}?open=0,1,2,3")
        await rewind_on(stage, page, run.id, to, by)
        await page.set_viewport_size(TALL)
        await expect(page.locator(".run-state")).to_contain_text(shown)
        await expect(page.locator(LIVE[state].where)).to_contain_text(LIVE[state].text)
        await expect_journal(stage, run.id, page)


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("name", ENDINGS)
async def test_an_ended_run_is_forked_and_rewound(stage: Stage, name: str, by: By) -> None:
    ending = ENDINGS[name]
    to, again = ending.kept, ending.again or ending.state
    async with ended_as(stage, name) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(run.path)
        fork_id = await fork_from(stage, page, run.id, to, by)
        await expect(page.locator(".run-state")).to_contain_text(again, timeout=15_000)
        await page.goto(f"{stage.console.base}{run.path}?tab=timeline&open=0,1,2,3,4,5")
        await rewind_on(stage, page, run.id, to, by)
        await page.set_viewport_size(TALL)
        await expect(page.locator(".run-state")).to_contain_text(again, timeout=15_000)
        await expect_journal(stage, run.id, page)
        await end(stage, fork_id)
        await end(stage, run.id)


@pytest.mark.parametrize("act", [REWIND, FORK], ids=lambda act: act.label)
async def test_an_iteration_that_a_run_lacks_is_refused_in_the_dialog(stage: Stage, act: Act) -> None:
    async with in_state(stage, "without a worker") as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(run.path)
        [(field, _)] = act.fields
        await act._replace(fields=((field, "7"),)).do(page, "key")
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("7")
        assert await stage.journal(run.id, "InterventionReceived") == []


async def test_a_stuck_run_shows_why_and_takes_guidance_once_it_is_mended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_state(stage, "held") as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(run.path)
        with a_defect(monkeypatch):
            await ACTS["steer"].do(page, "key")
            await wait_until_stuck(stage, run)
            await page.reload()
            await expect(page.locator(".trouble")).to_contain_text("No worker can continue this run", timeout=20_000)
            await expect(page.locator(".trouble")).to_contain_text("a defect", timeout=20_000)
            await expect(page.locator(".run-state")).to_contain_text("stuck", timeout=20_000)
            await expect(page.locator(".acts > .act").first).to_contain_text("received")
        await wait_until(lambda: is_on_record(run.handle), 60)
        await expect(page.locator(".trouble")).to_have_count(0, timeout=30_000)
        await page.locator(".wait").get_by_role("button", name="Approve").click()
        await expect(page.locator(".acts")).to_contain_text("applied in reasoning of iteration 3", timeout=30_000)


@pytest.mark.parametrize("by", WAYS)
async def test_an_act_while_the_server_is_away_is_applied_once_it_is_back(stage: Stage, by: By) -> None:
    async with in_state(stage, "reasoning") as run, a_way(stage.client.service_client.config.target_host) as way:
        far = await Client.connect(way.address, data_converter=data_converter)
        async with a_console(far, stage.loop.task_queue) as console, a_visit(stage.browser, console) as visit:
            page = await visit.open(run.path)
            way.cut()
            await ACTS["steer"].do(page, by)
            await expect(page.locator(".run-sent")).to_contain_text(
                re.compile("sent again|does not answer"), timeout=30_000
            )
            await way.open()
            await expect(page.locator(".run-sent")).to_contain_text("received", timeout=30_000)
            run.hold.go.set()
            await expect(page.locator(".run-sent")).to_contain_text(
                "applied in reasoning of iteration 3", timeout=30_000
            )
        applied = await stage.journal(run.id, "InterventionApplied")
    assert [(each["kind"], each["by"]) for each in applied] == [("steer", OWNER)]


@pytest.mark.parametrize("state", LIVE)
async def test_a_reload_shows_the_same_state_and_each_entry_once(stage: Stage, state: str) -> None:
    async with in_state(stage, state) as run, a_visit(stage.browser, stage.console) as visit:
        page = await visit.open(f"{run.path}?tab=timeline&open=0,1,2,3")
        await page.set_viewport_size(TALL)
        before = (set[str](), dict[str, str]())
        for is_again in (False, True):
            if is_again:
                await page.reload()
            await expect(page.locator(".run-state")).to_contain_text(LIVE[state].shown)
            await expect(page.locator(LIVE[state].where)).to_contain_text(LIVE[state].text)
            await expect_journal(stage, run.id, page)
            found = await controls_of(page)
            assert found == before or not is_again
            before = found
