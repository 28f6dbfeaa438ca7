"""Workers are killed during half-open circuits, pre-hydration and summaries."""

import signal
import time
from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolError
from orga.testing import FakeTool
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from tests.support.crash.stage import Case, Outcome, Outcomes, dying_at, outcome_of, play_all
from tests.support.crash.worker import Backstage

RECOVERY_S = 0.5


def fails_first(number: int) -> str:
    if number <= 1:
        raise ToolError("no route", retryable=True)
    return "works again"


def passes(number: int) -> str:
    """Let the time pass after which an open circuit may be tried."""
    time.sleep(RECOVERY_S)  # this advances the workflow's clock; a longer wait does no harm
    return "some time passed"


def troupe(backstage: Backstage) -> list[FakeTool]:
    breaker = BreakerOptions(failure_threshold=1, recovery_s=RECOVERY_S)
    return [
        backstage.tool("flaky", body=fails_first, breaker=breaker, max_attempts=1),
        backstage.tool("frail", "irreversible", fails_first, breaker=breaker),
        backstage.tool("wait", "read_only", passes),
        backstage.tool("find", "read_only", takes="ticket"),
        backstage.tool("read", "read_only", lambda number: f"page {number} " + "x" * 1_000),
        backstage.tool("look"),
    ]


RUN: dict[str, Any] = {"cast": troupe, "config": {"step_iteration": {"enabled": False}}}
MENDED: dict[str, Any] = {**RUN, "plan": ("flaky", "wait", "flaky", "look")}
FRAIL: dict[str, Any] = {**RUN, "plan": ("frail", "wait", "frail", "wait", "frail", "look")}
TICKETS = {"custom_patterns": [{"ref_type": "ticket", "pattern": r"T-\d"}], "resolution_tools": {"ticket": "find"}}
LOOKED_UP: dict[str, Any] = {
    "cast": troupe,
    "plan": ("T-1", "T-2", "look"),
    "config": {"pre_hydration": {**TICKETS, "timeout_s": 60}},
}
SUMMED_UP: dict[str, Any] = {
    "cast": troupe,
    "plan": ("read",) * 9,
    "config": {"context_strategy": "anchored_summary", "context_token_budget": 1_000},
}

CASES: dict[str, Case] = {
    "circuit": Case(**MENDED),
    "circuit, before it is tried": dying_at("after wait", **MENDED),
    "circuit, while it is noted": dying_at("noting CircuitClosed", **MENDED),
    "frail circuit": Case(**FRAIL),
    "frail circuit, while it is tried": dying_at("frail 2", **FRAIL),
    "hydration": Case(**LOOKED_UP),
    "hydration, in the gate": dying_at("gate 0", **LOOKED_UP),
    "hydration, in a lookup": dying_at("find 1", **LOOKED_UP),
    "hydration, while it is noted": dying_at("noting PreHydrationComplete", **LOOKED_UP),
    "summary": Case(**SUMMED_UP),
    "summary, while it is written": dying_at("summary", **SUMMED_UP),
}


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize("case", [case for case in CASES if "," in case and not case.startswith("frail")])
async def test_a_kill_changes_nothing_in_circuits_lookups_and_summaries(outcomes: Outcomes, case: str) -> None:
    scene, _, _ = case.partition(",")
    undisturbed, outcome = outcome_of(outcomes, scene), outcome_of(outcomes, case)

    assert outcome.exits == [-signal.SIGKILL]
    assert set(outcome.tools) == set(undisturbed.tools)
    again = Counter(outcome.tools) - Counter(undisturbed.tools)
    assert set(again) <= ({"find"} if case.endswith("lookup") else set())
    assert len({key for _, key in outcome.effects}) == len({key for _, key in undisturbed.effects})
    assert outcome.journal == undisturbed.journal


async def test_the_undisturbed_runs_used_circuits_lookups_and_summaries(outcomes: Outcomes) -> None:
    """This ensures that the comparisons are about these features."""
    circuit, frail = outcome_of(outcomes, "circuit"), outcome_of(outcomes, "frail circuit")
    hydration, summary = outcome_of(outcomes, "hydration"), outcome_of(outcomes, "summary")

    assert circuits(circuit) == circuits(frail) == ["CircuitOpened", "CircuitClosed"]
    assert circuit.tools == ["flaky", "wait", "flaky", "look"]
    assert [data["resolved"] for data in hydration.data("PreHydrationComplete")] == [2]
    assert hydration.tools == ["find", "find", "look"]
    assert {data["summary"] for data in summary.data("ContextCompacted")} == {"model"}
    assert any("characters, summed up" in line for line in summary.output)


async def test_a_circuit_trial_whose_worker_died_is_released(outcomes: Outcomes) -> None:
    """Its silence counts as a failure of the tool. The circuit opens again and can be tried later."""
    outcome = outcome_of(outcomes, "frail circuit, while it is tried")

    assert outcome.exits == [-signal.SIGKILL]
    assert outcome.tools == ["frail", "wait", "frail", "wait", "frail", "look"]
    assert len({key for _, key in outcome.effects}) == len(outcome.effects)
    assert circuits(outcome) == ["CircuitOpened", "CircuitOpened", "CircuitClosed"]
    assert "The outcome is unknown: it may have taken effect." in outcome.output[2]
    assert outcome.output[4] == "works again"


def circuits(outcome: Outcome) -> list[str]:
    return [name for name, _, _ in outcome.journal if name.startswith("Circuit")]
