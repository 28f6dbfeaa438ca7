"""A worker is killed while a delegate works: both runs continue on another worker, and no tool acts twice."""

import signal
from typing import Any

import pytest
from temporalio.client import Client

from tests.support.crash.stage import EVERY_ITERATION, Case, Outcome, Outcomes, dying_at, outcome_of, play_all
from tests.support.crash.worker import Fate
from tests.support.runs.loop import check_replay, check_tasks, histories_of

PLAN = ("helper:look+note+send",)
TOOLS = ["look", "note", "send"]

CASES: dict[str, Case] = {
    "undisturbed": Case(PLAN),
    "in a model call of the delegate": dying_at("model call 2", plan=PLAN),
    "in the gate of the delegate": dying_at("gate 3", plan=PLAN),
    "in a read-only tool of the delegate": dying_at("look", plan=PLAN),
    "between two iterations of the delegate": dying_at("after note", plan=PLAN),
    "while the delegate ends": dying_at("after send", plan=PLAN),
    "while the delegate continues as new": dying_at("after look", plan=PLAN, roll_over_events=EVERY_ITERATION),
    "in an irreversible tool of the delegate": dying_at("send", plan=PLAN),
    "twice": Case(PLAN, (Fate("look"), Fate("model call 3"))),
}
SAME = [name for name in CASES if name not in {"undisturbed", "in an irreversible tool of the delegate"}]


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


def journal(outcome: Outcome) -> list[tuple[str, int, dict[str, Any]]]:
    """Return the journal without what differs between runs. The config of a delegate contains its remaining time."""
    own = ("run", "workflow_id", "input", "config")
    return [(e, i, {key: value for key, value in data.items() if key not in own}) for e, i, data in outcome.journal]


@pytest.mark.parametrize("case", SAME)
async def test_a_kill_changes_nothing(client: Client, outcomes: Outcomes, case: str) -> None:
    """Only the interrupted call runs again, under the same idempotency key."""
    cut = [fate.moment for fate in CASES[case].fates]
    undisturbed, outcome = outcome_of(outcomes, "undisturbed"), outcome_of(outcomes, case)

    assert outcome.exits == [-signal.SIGKILL] * len(cut)
    assert outcome.tools == [tool for tool in TOOLS for _ in range(2 if tool in cut else 1)]
    assert len({key for _, key in outcome.effects}) == len(TOOLS)
    assert outcome.ran.result.output == undisturbed.ran.result.output
    assert "look is done\nnote is done\nsend is done" in outcome.ran.result.output
    assert outcome.ran.result.usage == undisturbed.ran.result.usage
    assert outcome.ran.result.tool_calls.delegated == len(TOOLS)
    assert journal(outcome) == journal(undisturbed)
    for history in await histories_of(client, f"{outcome.ran.handle.id}.1.0"):
        check_tasks(history)
        await check_replay(history)


async def test_an_irreversible_call_of_the_delegate_is_not_repeated(
    outcomes: Outcomes,
) -> None:
    outcome = outcome_of(outcomes, "in an irreversible tool of the delegate")
    assert outcome.tools == TOOLS
    assert "The outcome is unknown: it may have taken effect." in outcome.ran.result.output
    assert outcome.ran.result.tool_calls.delegated == len(TOOLS)
