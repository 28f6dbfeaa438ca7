"""Workers are killed in the middle of a saga: it continues there under the same keys, and nothing runs twice."""

import signal
from collections import Counter

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolError
from orga.testing import FakeTool
from tests.support.crash.stage import Case, Outcomes, dying_at, outcome_of, play_all
from tests.support.crash.worker import Backstage


def refuses(number: int) -> str:
    raise ToolError("no money")


def agency(backstage: Backstage) -> list[FakeTool]:
    return [
        *(backstage.tool(name) for name in ("book", "unbook", "rent", "unrent", "unsend")),
        backstage.tool("send", "irreversible"),
        backstage.tool("ship", "irreversible", refuses),
    ]


DONE = "saga:book-unbook+rent-unrent+send"
UNDONE = "saga:book-unbook+rent-unrent+ship"
RISKY = "saga:book-unbook+send-unsend+ship"

MOMENTS = {
    DONE: ["book", "after book", "rent", "gate of rent", "noting SagaEnded"],
    UNDONE: ["rent", "after ship", "unrent", "after unrent", "noting RecoveryTriggered", "unbook", "noting SagaEnded"],
}

CASES: dict[str, Case] = {
    **{plan: Case((plan,), cast=agency) for plan in (DONE, UNDONE)},
    **{
        f"{plan}, {moment}": dying_at(moment, plan=(plan,), cast=agency)
        for plan, moments in MOMENTS.items()
        for moment in moments
    },
    "risky": dying_at("send", plan=(RISKY,), cast=agency),
}


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


async def test_the_undisturbed_sagas_finished_and_compensated(outcomes: Outcomes) -> None:
    done, undone = outcome_of(outcomes, DONE), outcome_of(outcomes, UNDONE)
    assert done.tools == ["book", "rent", "send"]
    assert done.output[0] == "[Saga done] all 3 steps"
    assert undone.tools == ["book", "rent", "ship", "unrent", "unbook"]
    assert undone.output[0].endswith("step 3 of 3 (ship failed); what was done is taken back")


@pytest.mark.parametrize(("plan", "moment"), [(plan, moment) for plan, found in MOMENTS.items() for moment in found])
async def test_a_kill_changes_nothing_in_a_saga(outcomes: Outcomes, plan: str, moment: str) -> None:
    """Only the interrupted call runs again, under the same idempotency key."""
    undisturbed, outcome = outcome_of(outcomes, plan), outcome_of(outcomes, f"{plan}, {moment}")
    cut = [moment] if moment in undisturbed.tools else []

    assert outcome.exits == [-signal.SIGKILL]
    assert Counter(outcome.tools) == Counter([*undisturbed.tools, *cut])
    assert list(dict.fromkeys(outcome.tools)) == undisturbed.tools, "in the same order"
    assert len({key for _, key in outcome.effects}) == len(undisturbed.tools)
    assert outcome.journal == undisturbed.journal


async def test_an_interrupted_irreversible_step_is_compensated_and_not_repeated(outcomes: Outcomes) -> None:
    outcome = outcome_of(outcomes, "risky")
    assert outcome.exits == [-signal.SIGKILL]
    assert outcome.tools == ["book", "send", "unsend", "unbook"]
    assert "saga stopped at step 2 of 3 (send failed); what was done is taken back" in outcome.output[0]
    assert len({key for _, key in outcome.effects}) == 4
