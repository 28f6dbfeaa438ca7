"""Workers are killed while a call waits for its result: the work is started once, and the result counts once."""

import asyncio
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.client import Client

import orga
from orga.activities.ports import Tool
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
from tests.support.runs.deferred import completion
from tests.support.runs.questions import send_update, wait_for_question


def troupe(backstage: Backstage) -> Sequence[Tool]:
    check = orga.DeferredTool("check", start=backstage.tool("order"), output_schema={"type": "string"})
    return [check, backstage.tool("look")]


def completes(*ends: dict[str, Any]) -> Happens:
    """Return a function that completes the waiting call. If the case kills, no worker runs when it does."""

    async def happens(stage: Stage) -> None:
        wait = await wait_for_question(stage.handle, PATIENCE.total_seconds())
        await stage.until(lambda: _is_started(stage))  # it waits from the beginning of the start
        async with stage.without_worker():
            sent = [asyncio.create_task(_sent(stage, completion(wait, **end))) for end in ends]
            await stage.until(lambda: are_sent(stage, *sent))
        await asyncio.gather(*sent)

    return happens


async def _is_started(stage: Stage) -> bool:
    description = (await stage.handle.describe()).raw_description
    return (
        any(tool == "order" for tool, _ in stage.effects)
        and not description.pending_activities
        and not description.HasField("pending_workflow_task")
    )


async def _sent(stage: Stage, given: dict[str, Any]) -> None:
    await send_update(stage.handle, "complete_tool_call", given)


def case(*ends: dict[str, Any]) -> dict[str, Any]:
    return {"plan": ("look", "check", "look"), "cast": troupe, "happens": completes(*ends)}


FINE, FAILED = case({"result": "fine"}), case({"error": "no such person"})

CASES: dict[str, Case] = {
    "completed": Case(**FINE),
    "completed, killed while it waits": Case(**FINE, kills=True),
    "completed, killed while it waits in a later run": Case(**FINE, roll_over_events=EVERY_ITERATION, kills=True),
    "completed, while the work is being started": dying_at("order 1", **FINE),
    "completed, before the wait is noted": dying_at("noting ApprovalRequested", **FINE),
    "completed, when the result arrives": dying_at("asked to complete_tool_call", **FINE),
    "completed, while the result is noted": dying_at("noting ApprovalResolved", **FINE),
    "failed": Case(**FAILED),
    "failed, killed while it waits": Case(**FAILED, kills=True),
    "failed, while the failure is noted": dying_at("noting ApprovalResolved", **FAILED),
}


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize("case", [case for case in CASES if "," in case])
async def test_a_kill_changes_nothing_about_a_result(outcomes: Outcomes, case: str) -> None:
    scene, _, _ = case.partition(",")
    undisturbed, outcome = outcome_of(outcomes, scene), outcome_of(outcomes, case)
    cut = ["order"] if case.endswith("being started") else []

    assert outcome.exits == [-signal.SIGKILL]
    assert Counter(outcome.tools) == Counter([*undisturbed.tools, *cut])
    assert len({key for tool, key in outcome.effects if tool == "order"}) == 1
    assert comparable_journal(outcome) == comparable_journal(undisturbed)


async def test_the_undisturbed_runs_waited_and_were_completed(outcomes: Outcomes) -> None:
    """This ensures that the comparisons are about results."""
    completed, failed = outcome_of(outcomes, "completed"), outcome_of(outcomes, "failed")

    assert (completed.tools, failed.tools) == (["look", "order", "look"], ["look", "order", "look"])
    assert completed.output == ["look is done", '"fine"', "look is done"]
    assert "JobFailed: no such person" in failed.output[1]
    for outcome, choice in ((completed, "completed"), (failed, "failed")):
        assert [data["choice"] for data in outcome.data("ApprovalResolved")] == [choice]
