"""Workers are killed while a person is asked, and decisions are sent while no worker runs: each counts once."""

import asyncio
import signal
from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolError
from orga.testing import FakeTool
from orga.workflows.types.tool_calls.recovery import Recovery
from tests.support.crash.stage import (
    EVERY_ITERATION,
    PATIENCE,
    Case,
    Happens,
    Outcomes,
    Stage,
    are_sent,
    dying_at,
    outcome_of,
    play_all,
)
from tests.support.crash.worker import Backstage
from tests.support.runs.questions import send_update, wait_for_note, wait_for_question


def fails_once(number: int) -> str:
    if number == 1:
        raise ToolError("the disk is full")
    return "works again"


def troupe(backstage: Backstage) -> list[FakeTool]:
    asking = Recovery(strategy="escalate", max_attempts=3, base_delay_ms=1)
    return [
        backstage.tool("save", body=fails_once, recovery=asking),
        backstage.tool("look"),
        backstage.tool("hold", held=True),
    ]


def answers_question(update: str, **given: Any) -> Happens:
    """Return a function that answers the first question. If the case kills, no worker runs when the answer arrives."""

    async def happens(stage: Stage) -> None:
        wait = await wait_for_question(stage.handle, PATIENCE.total_seconds())
        await wait_for_note(stage.handle, "ApprovalRequested")  # a query may show what the server has not recorded yet
        answer = {"escalation_id": wait["wait_id"], **given} if update == "resolve_escalation" else given
        async with stage.without_worker():
            sent = asyncio.create_task(send_update(stage.handle, update, answer))
            await stage.until(lambda: are_sent(stage, sent))
        await sent

    return happens


def question_case(update: str, plan: str, config: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    return {
        "plan": tuple(plan.split()),
        "cast": troupe,
        "config": config or {},
        "happens": answers_question(update, **given),
    }


RETRIED = question_case("resolve_escalation", "save look", choice="retry", by="ada")
GIVEN = question_case("resolve_escalation", "save look", choice="result", result="it is 42", by="ada")
ONCE = {"on_exhausted": "ask", "max_iterations": 1}
EXTENDED = question_case("extend_budget", "look look", ONCE, max_iterations=9)
LATER: dict[str, Any] = {"roll_over_events": EVERY_ITERATION}

CASES: dict[str, Case] = {
    "retried": Case(**RETRIED),
    "retried, decided while nobody is there": Case(**RETRIED, kills=True),
    "retried, when the decision arrives": dying_at("asked to resolve_escalation", **RETRIED),
    "retried, before the question is noted": dying_at("noting ApprovalRequested", **RETRIED),
    "retried, while the decision is noted": dying_at("noting ApprovalResolved", **RETRIED),
    "retried, while it is tried again": dying_at("save 2", **RETRIED),
    "given": Case(**GIVEN),
    "given, decided while nobody is there": Case(**GIVEN, kills=True),
    "given, while the decision is noted": dying_at("noting ApprovalResolved", **GIVEN),
    "extended": Case(**EXTENDED),
    "extended, raised while nobody is there": Case(**EXTENDED, kills=True),
    "extended, when it is raised": dying_at("asked to extend_budget", **EXTENDED),
    "extended, in the next run": Case(**EXTENDED, **LATER, kills=True),
}


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize("case", [case for case in CASES if "," in case])
async def test_a_kill_changes_nothing_about_a_question(outcomes: Outcomes, case: str) -> None:
    scene, _, _ = case.partition(",")
    undisturbed, outcome = outcome_of(outcomes, scene), outcome_of(outcomes, case)
    cut = ["save"] if case.endswith("tried again") else []

    assert outcome.exits == [-signal.SIGKILL]
    assert Counter(outcome.tools) == Counter([*undisturbed.tools, *cut])
    assert len({key for _, key in outcome.effects}) == len({key for _, key in undisturbed.effects})
    assert outcome.journal == undisturbed.journal


async def test_the_undisturbed_runs_asked_and_were_answered(outcomes: Outcomes) -> None:
    """This ensures that the comparisons are about questions."""
    retried, given, extended = (outcome_of(outcomes, scene) for scene in ("retried", "given", "extended"))

    assert (retried.output, retried.tools) == (["works again", "look is done"], ["save", "save", "look"])
    assert retried.effects[0] == retried.effects[1]
    assert (given.output[:2], given.tools) == (["[Result from the operator]", "it is 42"], ["save", "look"])
    assert (extended.output, extended.ran.result.iterations) == (["look is done", "look is done"], 3)
    for outcome, kind in ((retried, "escalation"), (given, "escalation"), (extended, "budget")):
        events = [name for name, _, _ in outcome.journal]
        assert (events.count("ApprovalRequested"), events.count("ApprovalResolved")) == (1, 1)
        assert [data["kind"] for data in outcome.data("ApprovalRequested")] == [kind]
