"""Workers are killed around continue-as-new while guidance waits: none is lost or read twice, and the order stays."""

import signal
from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client

from orga.testing import FakeTool
from tests.support.crash.stage import EVERY_ITERATION, Case, Outcomes, Stage, dying_at, outcome_of, play_all
from tests.support.crash.worker import Backstage
from tests.support.runs.questions import send_update

PLAN = ("look", "hold", "look")


def troupe(backstage: Backstage) -> list[FakeTool]:
    return [backstage.tool("look"), backstage.tool("hold", held=True)]


async def send_guidance(stage: Stage) -> None:
    """Send guidance during a tool, pause at the end of the iteration, send more guidance, and resume."""
    await stage.had_effect("hold")
    await stage.handle.signal("steer", "first")
    await stage.handle.signal("add_context", "second")
    await send_update(stage.handle, "extend_budget", {"max_iterations": 9})
    await stage.handle.signal("pause")
    async with stage.without_worker():
        await stage.handle.signal("steer", "third")
    stage.release()
    await stage.until(lambda: is_paused(stage))
    await stage.handle.signal("steer", "fourth")
    await stage.handle.signal("resume")


async def send_guidance_while_paused(stage: Stage) -> None:
    """Do the same, but send the guidance of the pause while no worker runs."""
    await stage.had_effect("hold")
    await stage.handle.signal("steer", "first")
    await stage.handle.signal("add_context", "second")
    await send_update(stage.handle, "extend_budget", {"max_iterations": 9})
    await stage.handle.signal("pause")
    await stage.handle.signal("steer", "third")
    stage.release()
    await stage.until(lambda: is_paused(stage))
    async with stage.without_worker():
        await stage.handle.signal("steer", "fourth")
        await stage.handle.signal("resume")


async def send_guidance_too_late(stage: Stage) -> None:
    """Send more guidance after the worker has decided to continue as new, and before its death."""
    await stage.had_effect("hold")
    await stage.handle.signal("steer", "first")
    await send_update(stage.handle, "extend_budget", {"max_iterations": 9})
    stage.release()
    async with stage.without_next_worker():
        await stage.handle.signal("add_context", "late")
        await stage.handle.signal("steer", "later")


async def is_paused(stage: Stage) -> bool:
    return (await stage.handle.query("status"))["phase"] == "paused"


RUN: dict[str, Any] = {
    "plan": PLAN,
    "cast": troupe,
    "roll_over_events": EVERY_ITERATION,
    "config": {"max_iterations": 3},
}

CASES: dict[str, Case] = {
    "undisturbed": Case(**RUN, happens=send_guidance),
    "while it waits": Case(**RUN, happens=send_guidance, kills=True),
    "while the run is paused": Case(**RUN, happens=send_guidance_while_paused, kills=True),
    "while continuing as new": dying_at("continuing as new after hold", **RUN, happens=send_guidance),
    "right after continuing as new": dying_at("continued as new after hold", **RUN, happens=send_guidance),
    "in the model call that reads it": dying_at("model call 3", **RUN, happens=send_guidance),
    "more comes after the end of a run was decided": dying_at(
        "continuing as new after hold", **RUN, happens=send_guidance_too_late
    ),
}

GUIDANCE = [
    "[Guidance from the operator] first",
    "[Context from the operator]",
    "second",
    "[Guidance from the operator] third",
    "[Guidance from the operator] fourth",
]


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.happens is not send_guidance_too_late])
async def test_guidance_is_read_once_and_in_order(outcomes: Outcomes, case: str) -> None:
    undisturbed, outcome = outcome_of(outcomes, "undisturbed"), outcome_of(outcomes, case)
    cut = ["hold"] if case == "while it waits" else []

    assert outcome.exits == ([] if case == "undisturbed" else [-signal.SIGKILL])
    assert outcome.output == ["look is done", "hold is done", *GUIDANCE, "look is done"]
    assert Counter(outcome.tools) == Counter([*PLAN, *cut])
    assert len({key for _, key in outcome.effects}) == len(PLAN)
    assert outcome.journal == undisturbed.journal
    assert len(outcome.ran.histories) == len(PLAN) + 1


async def test_the_undisturbed_run_received_all_guidance(outcomes: Outcomes) -> None:
    outcome = outcome_of(outcomes, "undisturbed")

    kinds = [data["kind"] for data in outcome.data("InterventionReceived")]
    assert kinds == ["steer", "add_context", "extend_budget", "pause", "steer", "steer", "resume"]
    assert outcome.ran.result.iterations == 4, "the limit of 3 was raised in an earlier segment"


async def test_guidance_after_the_decision_to_continue_as_new_is_not_lost(outcomes: Outcomes) -> None:
    """The server rejects the completion of a task while a signal is unread, so the run has to look again."""
    outcome = outcome_of(outcomes, "more comes after the end of a run was decided")

    assert outcome.exits == [-signal.SIGKILL]
    late = ["[Context from the operator]", "late", "[Guidance from the operator] later"]
    assert outcome.output == ["look is done", "hold is done", GUIDANCE[0], *late, "look is done"]
    assert outcome.tools == list(PLAN)
    assert [data["kind"] for data in outcome.data("InterventionReceived")] == [
        "steer",
        "extend_budget",
        "add_context",
        "steer",
    ]
    assert len(outcome.ran.histories) == len(PLAN) + 1
