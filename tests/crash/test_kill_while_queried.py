"""Workers are killed while queries arrive all the time: anything that a query changed would show in a replay."""

import asyncio
import signal
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from orga.client.proof.verify import verify
from orga.client.runs.exchange import UNPROCESSED
from orga.testing import FakeTool
from tests.support.crash.stage import Case, Outcomes, Stage, outcome_of, play_all
from tests.support.crash.worker import Backstage
from tests.support.runs.queried import being_looked_at, status_of
from tests.support.runs.questions import is_on_record, send_update

TIMES = 4
"""Number of parallel runs of each scene, because a query has to arrive with the task that it would split."""


def troupe(backstage: Backstage) -> list[FakeTool]:
    return [backstage.tool("pay"), backstage.tool("look", execution="local"), backstage.tool("hold", held=True)]


async def approve(stage: Stage) -> None:
    """Approve the held call."""
    [call] = (await question_of(stage, "approval"))["data"]["calls"]
    await send_until_taken(stage, "approve", {"approval_id": call["id"], "approver": "ada"})


async def send_until_taken(stage: Stage, name: str, argument: dict[str, Any]) -> None:
    """Send an update. Repeat it if the SDK left it out of its task, as `client/runs/exchange.py` does."""
    while True:
        try:
            return await send_update(stage.handle, name, argument)
        except WorkflowUpdateFailedError as error:
            if not isinstance(error.cause, ApplicationError) or error.cause.type != UNPROCESSED:
                raise


async def question_of(stage: Stage, kind: str) -> dict[str, Any]:
    """Return the question of this kind once it is recorded. A slow machine gets the time it needs until then."""
    found: list[dict[str, Any]] = []

    async def is_asked() -> bool:
        status: dict[str, Any] = await status_of(stage.handle) or {"waiting": ()}
        found[:] = [wait for wait in status["waiting"] if wait["kind"] == kind]
        if not found and status["waiting"] and await is_on_record(stage.handle):
            await send_until_taken(stage, "extend_budget", {"timeout_s": status["budgets"]["timeout_s"] + 6})
        return bool(found) and await is_on_record(stage.handle)

    await stage.until(is_asked)
    return found[0]


async def approve_and_extend_time(stage: Stage) -> None:
    """Approve, let the time run out, kill the worker while a person is asked for more time, and grant it."""
    async with being_looked_at(stage.client, stage.handle.id):
        await approve(stage)
        await question_of(stage, "budget")
        async with stage.without_worker():
            more = asyncio.create_task(send_until_taken(stage, "extend_budget", {"timeout_s": 1_000}))
            await asyncio.sleep(0.5)
        await more
        stage.release()
        await stage.handle.result()


async def approve_twice(stage: Stage) -> None:
    """Approve twice. The worker is killed in between, and in a local tool."""
    stage.release()
    async with being_looked_at(stage.client, stage.handle.id):
        await approve(stage)
        await question_of(stage, "approval")
        async with stage.without_worker():
            await stage.handle.signal("steer", "go on")
        await approve(stage)
        await stage.handle.result()


ON_EXHAUSTED = {"timeout_s": 8, "on_exhausted": "ask"}
SCENES = {
    "the time runs out": Case(
        ("look", "pay", "hold"), cast=troupe, happens=approve_and_extend_time, config=ON_EXHAUSTED, kills=True
    ),
    "two approvals": Case(("look", "pay", "look", "pay", "look"), cast=troupe, happens=approve_twice, kills=True),
}
CASES = {f"{scene}, {number}": case for scene, case in SCENES.items() for number in range(TIMES)}


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize("case", CASES)
async def test_another_worker_continues_and_the_run_verifies(client: Client, outcomes: Outcomes, case: str) -> None:
    outcome = outcome_of(outcomes, case)
    assert outcome.exits == [-signal.SIGKILL]
    assert outcome.ran.result.termination.reason == "completed"
    found = (await verify(client, outcome.ran.handle.id)).checks
    assert [(check.name, check.detail) for check in found if not check.ok] == []
