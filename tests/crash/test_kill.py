"""A worker process is killed at any moment: another one continues with the same journal, and no tool repeats."""

import random
import signal
from itertools import groupby

import pytest
from temporalio.client import Client

from tests.support.crash.stage import EVERY_ITERATION, SHORT, Case, Outcomes, dying_at, outcome_of, play_all
from tests.support.crash.worker import Fate

LONG = ("look", "note", "look") * 4
CHANCE = random.Random(5)


def at_random() -> Case:
    """Return a long run whose first workers die some time after their first effect."""
    return Case(LONG, tuple(Fate(after_s=CHANCE.uniform(0, 0.5)) for _ in range(2)))


CASES: dict[str, Case] = {
    "undisturbed": Case(),
    "before the first task is done": dying_at("first task"),
    "in prepare": dying_at("prepare"),
    "in a model call": dying_at("model call 2"),
    "in the gate": dying_at("gate 2"),
    "in a read-only tool": dying_at("look"),
    "in an idempotent tool": dying_at("note"),
    "in an irreversible tool": dying_at("send"),
    "between two iterations": dying_at("after look"),
    "right after an irreversible tool": dying_at("after send"),
    "while continuing as new": dying_at("after note", roll_over_events=EVERY_ITERATION),
    "right after continuing as new": dying_at("continued as new", roll_over_events=EVERY_ITERATION),
    "undisturbed, long": Case(LONG),
    "at random": at_random(),
    "at random, another time": at_random(),
    "at random, a third time": at_random(),
}


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize(
    "case", [name for name, case in CASES.items() if case.plan == SHORT and name != "in an irreversible tool"]
)
async def test_a_kill_changes_nothing(outcomes: Outcomes, case: str) -> None:
    """Only the interrupted call runs again, under the same idempotency key."""
    cut = [fate.moment for fate in CASES[case].fates]
    is_rolled_over = CASES[case].roll_over_events == EVERY_ITERATION
    undisturbed, outcome = outcome_of(outcomes, "undisturbed"), outcome_of(outcomes, case)

    assert outcome.exits == [-signal.SIGKILL] * len(cut)
    assert outcome.ran.result.output == "look is done\nnote is done\nsend is done"
    assert outcome.tools == [tool for tool in SHORT for _ in range(2 if tool in cut else 1)]
    assert len({key for _, key in outcome.effects}) == len(SHORT)
    assert outcome.journal == undisturbed.journal
    assert len(outcome.ran.histories) == (1 + len(SHORT) if is_rolled_over else 1)


async def test_an_interrupted_irreversible_call_is_not_repeated_and_the_model_learns_why(outcomes: Outcomes) -> None:
    undisturbed = outcome_of(outcomes, "undisturbed")
    outcome = outcome_of(outcomes, "in an irreversible tool")

    assert outcome.exits == [-signal.SIGKILL]
    assert outcome.tools == ["look", "note", "send"]
    lines = outcome.output
    assert lines[:2] == ["look is done", "note is done"]
    assert lines[2].startswith("[Error] its worker went silent")
    assert "The outcome is unknown: it may have taken effect." in lines[2]
    differing = [mine[:2] for mine, theirs in zip(outcome.journal, undisturbed.journal, strict=True) if mine != theirs]
    assert differing == [
        ("ObservationsCollected", 3),
        ("ReasoningComplete", 4),
        ("Terminated", 4),
    ]
    assert outcome.ran.result.tool_calls.failed == 1


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("at random")])
async def test_several_kills_at_random_moments_change_nothing(outcomes: Outcomes, case: str) -> None:
    undisturbed, outcome = outcome_of(outcomes, "undisturbed, long"), outcome_of(outcomes, case)
    kills = len(CASES[case].fates)

    assert outcome.exits == [-signal.SIGKILL] * kills
    calls = [(tool, key) for (tool, key), _ in groupby(outcome.effects, key=tuple)]
    assert [tool for tool, _ in calls] == list(LONG), "an earlier call ran again after a later one"
    assert len({key for _, key in calls}) == len(LONG)
    assert len(outcome.effects) <= len(LONG) + kills
    assert outcome.journal == undisturbed.journal
