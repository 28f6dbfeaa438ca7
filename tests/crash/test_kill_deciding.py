"""Workers are killed around a decision, and while a message is being sent: one decision, one message, nothing lost."""

import signal
from typing import Any

import pytest
from temporalio.client import Client

from tests.crash.test_kill_waiting import RETRIED
from tests.support.crash.stage import EVERY_ITERATION, Case, Outcomes, Stage, dying_at, outcome_of, play_all

DECIDED: dict[str, Any] = {"plan": ("look", "decide:l", "note")}
ROLLED: dict[str, Any] = {**DECIDED, "roll_over_events": EVERY_ITERATION}


def answered_after(times: int) -> dict[str, Any]:
    """Return a run whose question is answered after a receiver has got it this many times."""

    async def happens(stage: Stage) -> None:
        async def has_come() -> bool:
            return len(stage.messages) == times

        await stage.until(has_come)
        await RETRIED["happens"](stage)

    return {**RETRIED, "happens": happens, "notify": ("escalation",)}


CASES: dict[str, Case] = {
    "decided": Case(**DECIDED),
    "decided, when its verdict comes": dying_at("gate of decide", **DECIDED),
    "decided, before it is noted": dying_at("noting DecisionGrounded", **DECIDED),
    "decided, at the next model call": dying_at("model call 3", **DECIDED),
    "rolled": Case(**ROLLED),
    "rolled, before it is noted": dying_at("noting DecisionGrounded", **ROLLED),
    "rolled, in the next run": dying_at("model call 3", **ROLLED),
    "notified": Case(**answered_after(1)),
    "notified, when the receiver has it": dying_at("notified", **answered_after(2)),
}


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize("case", [case for case in CASES if "," in case])
async def test_a_kill_changes_nothing(outcomes: Outcomes, case: str) -> None:
    scene, _, _ = case.partition(",")
    undisturbed, outcome = outcome_of(outcomes, scene), outcome_of(outcomes, case)
    assert outcome.exits == [-signal.SIGKILL]
    assert outcome.journal == undisturbed.journal
    assert outcome.ran.raw["data"] == undisturbed.ran.raw["data"]
    assert len(set(outcome.notified)) == len(set(undisturbed.notified))


async def test_the_undisturbed_runs_decided_and_sent_a_message(outcomes: Outcomes) -> None:
    """This ensures that the comparisons are not trivial."""
    for scene in ("decided", "rolled"):
        decided = outcome_of(outcomes, scene)
        [made] = decided.data("DecisionGrounded")
        assert (made["rule"], made["outcome"], made["facts"]["tainted"]["source"]) == ("read", {"go": "no"}, "look")
        assert decided.ran.raw["data"]["decisions"]["size"]["outcome"] == {"go": "no"}
    assert len(outcome_of(outcomes, "rolled").ran.histories) > 2
    assert len(outcome_of(outcomes, "notified").notified) == 1


async def test_a_message_whose_delivery_is_uncertain_is_repeated_under_its_id(outcomes: Outcomes) -> None:
    messages = outcome_of(outcomes, "notified, when the receiver has it").notified
    assert (len(messages), len(set(messages))) == (2, 1)
