"""Workers are killed while a call is held for approval: the approval is taken once, and the call runs once."""

import asyncio
import signal
from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client

from orga.testing import FakeTool
from tests.support.crash.stage import (
    EVERY_ITERATION,
    PATIENCE,
    Case,
    Happens,
    Outcomes,
    Stage,
    are_sent,
    comparable_journal,
    dying_at,
    outcome_of,
    play_all,
)
from tests.support.crash.worker import Backstage
from tests.support.runs.questions import send_update, wait_for_note, wait_for_question


def troupe(backstage: Backstage) -> list[FakeTool]:
    return [backstage.tool("pay"), backstage.tool("look"), backstage.tool("hold", held=True)]


def decides_held_call(update: str) -> Happens:
    """Return a function that decides the held call. If the case kills, no worker runs when the decision arrives."""

    async def happens(stage: Stage) -> None:
        [call] = (await wait_for_question(stage.handle, PATIENCE.total_seconds()))["data"]["calls"]
        await wait_for_note(stage.handle, "ApprovalRequested")  # a query may show what the server has not recorded yet
        decision = {"approval_id": call["id"], "approver": "ada", "reason": "so it is"}
        async with stage.without_worker():
            sent = asyncio.create_task(send_update(stage.handle, update, decision))
            await stage.until(lambda: are_sent(stage, sent))
        await sent

    return happens


def held_call_case(update: str) -> dict[str, Any]:
    return {"plan": ("look", "pay", "look"), "cast": troupe, "happens": decides_held_call(update)}


YES, NO = held_call_case("approve"), held_call_case("deny")

CASES: dict[str, Case] = {
    "approved": Case(**YES),
    "approved, killed while it is held": Case(**YES, kills=True),
    "approved, killed while it is held in a later run": Case(**YES, roll_over_events=EVERY_ITERATION, kills=True),
    "approved, before the question is noted": dying_at("noting ApprovalRequested", **YES),
    "approved, when the yes arrives": dying_at("asked to approve", **YES),
    "approved, while the approval is noted": dying_at("noting ApprovalResolved", **YES),
    "approved, while it runs": dying_at("pay 1", **YES),
    "denied": Case(**NO),
    "denied, killed while it is held": Case(**NO, kills=True),
    "denied, when the no arrives": dying_at("asked to deny", **NO),
}


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize("case", [case for case in CASES if "," in case])
async def test_a_kill_changes_nothing_about_an_approval(outcomes: Outcomes, case: str) -> None:
    scene, _, _ = case.partition(",")
    undisturbed, outcome = outcome_of(outcomes, scene), outcome_of(outcomes, case)
    cut = ["pay"] if case.endswith("it runs") else []

    assert outcome.exits == [-signal.SIGKILL]
    assert Counter(outcome.tools) == Counter([*undisturbed.tools, *cut])
    assert len({key for tool, key in outcome.effects if tool == "pay"}) == undisturbed.tools.count("pay")
    assert comparable_journal(outcome) == comparable_journal(undisturbed)


async def test_the_undisturbed_runs_held_and_decided_calls(outcomes: Outcomes) -> None:
    """This ensures that the comparisons are about approvals."""
    approved, denied = outcome_of(outcomes, "approved"), outcome_of(outcomes, "denied")

    assert (approved.tools, denied.tools) == (["look", "pay", "look"], ["look", "look"])
    assert denied.output == ["look is done", "[Policy denied] not approved: so it is", "look is done"]
    for outcome, yes in ((approved, True), (denied, False)):
        assert [d["approved"] for d in outcome.data("ApprovalResolved") if d["kind"] == "call"] == [yes]
