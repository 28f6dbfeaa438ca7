"""A worker process is killed at any moment, another one goes on: same journal, no completed tool runs twice."""

import asyncio
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from tests.support.crash_worker import CrashWorker, Fate
from tests.support.loop import Loop, Ran
from tests.support.scripted import ScriptedProvider

pytestmark = pytest.mark.timeout(240)

PATIENCE = timedelta(seconds=150)
TASK_TIMEOUT = timedelta(seconds=5)
"""How soon the server takes a workflow task back from a dead worker."""

NEVER = 3_500
EVERY_ITERATION = 1
SHORT, LONG = ("look", "note", "send"), ("look", "note", "look") * 5
CHANCE = random.Random(5)
KILLS = tuple(Fate(after_s=CHANCE.uniform(0, 0.5)) for _ in range(5))


@dataclass(frozen=True)
class Case:
    """A run and how its workers die, one after the other."""

    fates: tuple[Fate, ...] = ()
    plan: tuple[str, ...] = SHORT
    roll_over_events: int = NEVER


def dies(moment: str, **fields: Any) -> Case:
    """Return a run whose first worker dies at that moment."""
    return Case((Fate(moment),), **fields)


@dataclass(frozen=True)
class Outcome:
    """What is left of a run that has ended."""

    ran: Ran
    effects: list[list[str]]
    """Tool and idempotency key, one a line."""
    exits: list[int | None]
    """How the workers before the last one ended."""

    @property
    def tools(self) -> list[str]:
        """The tools in the order of their effects."""
        return [tool for tool, _ in self.effects]

    @property
    def journal(self) -> list[tuple[str, int, dict[str, Any]]]:
        """The journal without times and hashes."""
        return [
            (entry.event, entry.iteration, {key: value for key, value in entry.data.items() if key != "duration_s"})
            for entry in self.ran.journal
        ]


CASES: dict[str, Case] = {
    "undisturbed": Case(),
    "before the first task is done": dies("first task"),
    "in prepare": dies("prepare"),
    "in a model call": dies("model call 2"),
    "in the gate": dies("gate 2"),
    "in a read-only tool": dies("look"),
    "in an idempotent tool": dies("note"),
    "in an irreversible tool": dies("send"),
    "between two iterations": dies("after look"),
    "right after an irreversible tool": dies("after send"),
    "while continuing as new": dies("after note", roll_over_events=EVERY_ITERATION),
    "right after continuing as new": dies("continued as new", roll_over_events=EVERY_ITERATION),
    "undisturbed, long": Case(plan=LONG),
    "at random": Case(KILLS, plan=LONG),
}


@dataclass(frozen=True)
class Stage:
    """Where one case plays: a task queue and a file of effects of its own."""

    client: Client
    case: Case
    folder: Path

    @property
    def effects(self) -> list[list[str]]:
        """The effects so far."""
        file = self.folder / "effects"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    async def play(self) -> Outcome:
        """Run the case to its end; the last worker is one that lives on."""
        handle = await self._start()
        exits = [await self._killed(fate) for fate in self.case.fates]
        survivor = self._worker(Fate()).started()
        try:
            ran = await Loop(self.client, self.folder.name, ScriptedProvider([])).ended(handle)
        finally:
            survivor.kill()
        return Outcome(ran, self.effects, exits)

    async def _start(self) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(
            "AgentWorkflow",
            {"task": " ".join(self.case.plan), "config": {"recovery": {"max_attempts": 10}}},
            id=f"agent-{self.folder.name}",
            task_queue=self.folder.name,
            execution_timeout=PATIENCE,
            task_timeout=TASK_TIMEOUT,
        )

    async def _killed(self, fate: Fate) -> int | None:
        """Let a worker work until it kills itself."""
        doomed = self._worker(fate).started()
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while doomed.exitcode is None:
                await asyncio.sleep(0.05)
        return doomed.exitcode

    def _worker(self, fate: Fate) -> CrashWorker:
        address = self.client.service_client.config.target_host
        return CrashWorker(address, self.folder.name, self.folder / "effects", self.case.roll_over_events, fate)


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome | BaseException]:
    """All cases at once: most of their time is the server's patience with a dead worker."""
    stages = [Stage(client, case, tmp_path_factory.mktemp("crash")) for case in CASES.values()]
    ended = await asyncio.gather(*(stage.play() for stage in stages), return_exceptions=True)
    return dict(zip(CASES, ended, strict=True))


def outcome_of(outcomes: Mapping[str, Outcome | BaseException], case: str) -> Outcome:
    outcome = outcomes[case]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


@pytest.mark.parametrize(
    "case", [name for name, case in CASES.items() if case.plan == SHORT and name != "in an irreversible tool"]
)
async def test_a_kill_changes_nothing(outcomes: Mapping[str, Outcome | BaseException], case: str) -> None:
    """Only the call that was cut off runs again, under the same idempotency key."""
    cut = [fate.moment for fate in CASES[case].fates]
    is_rolled_over = CASES[case].roll_over_events == EVERY_ITERATION
    undisturbed, outcome = outcome_of(outcomes, "undisturbed"), outcome_of(outcomes, case)

    assert outcome.exits == [-signal.SIGKILL] * len(cut)
    assert outcome.ran.result.output == "look is done\nnote is done\nsend is done"
    assert outcome.tools == [tool for tool in SHORT for _ in range(2 if tool in cut else 1)]
    assert len({key for _, key in outcome.effects}) == len(SHORT)
    assert outcome.journal == undisturbed.journal
    assert len(outcome.ran.histories) == (1 + len(SHORT) if is_rolled_over else 1)


async def test_an_irreversible_call_that_was_cut_off_is_not_repeated_and_the_model_is_told(
    outcomes: Mapping[str, Outcome | BaseException],
) -> None:
    undisturbed = outcome_of(outcomes, "undisturbed")
    outcome = outcome_of(outcomes, "in an irreversible tool")

    assert outcome.exits == [-signal.SIGKILL]
    assert outcome.tools == ["look", "note", "send"]
    told = (outcome.ran.result.output or "").splitlines()
    assert told[:2] == ["look is done", "note is done"]
    assert told[2].startswith("[Error] its worker went silent")
    assert "The outcome is unknown: it may have taken effect." in told[2]
    differing = [mine[:2] for mine, theirs in zip(outcome.journal, undisturbed.journal, strict=True) if mine != theirs]
    assert differing == [
        ("ObservationsCollected", 3),
        ("ReasoningComplete", 4),
        ("Terminated", 4),
    ]
    assert outcome.ran.result.tool_calls.failed == 1


async def test_kills_at_random_moments_in_a_row(outcomes: Mapping[str, Outcome | BaseException]) -> None:
    undisturbed, outcome = outcome_of(outcomes, "undisturbed, long"), outcome_of(outcomes, "at random")

    assert outcome.exits == [-signal.SIGKILL] * len(KILLS)
    calls = [(tool, key) for (tool, key), _ in groupby(outcome.effects, key=tuple)]
    assert [tool for tool, _ in calls] == list(LONG), "an earlier call ran again after a later one"
    assert len({key for _, key in calls}) == len(LONG)
    assert len(outcome.effects) <= len(LONG) + len(KILLS)
    assert outcome.journal == undisturbed.journal
