"""Recorded histories replay with today's code, and today's folds can read them."""

import sys
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from orga.client.history.events import read_events
from orga.client.history.values import converters_of
from orga.client.journal.laws import effect_faults
from orga.client.runners.workflows import our_runner
from orga.workflows.decisions.journal.entries import first_break
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.decisions.recount import ContextFold
from orga.workflows.types.status import JournalEntry
from tests.replay.record import SCENARIOS
from tests.support.runs.loop import check_replay

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


SHOWS = {
    "recovered": ("fallback", "cached_result", "dead_letter", "requeue"),
    "escalated": ("ApprovalRequested", "ApprovalResolved", "escalate"),
    "budget-extended": ("ApprovalRequested", "ApprovalResolved", "extend_budget"),
    "deferred": ("complete_tool_call", "InterventionRefused", "'choice': 'failed'", "JobFailed"),
    "step-limit": ("StepLimitReached",),
    "circuit": ("CircuitOpened", "CircuitClosed"),
    "step-limit-counted": ("StepLimitReached",),
    "step-limit-before": ("StepLimitReached",),
    "circuit-shown": ("CircuitOpened", "CircuitClosed"),
    "circuit-shown-before": ("CircuitOpened", "CircuitClosed"),
    "hydrated": ("PreHydrationComplete", "unresolvable"),
    "summarised": ("ContextCompacted", "anchored_summary"),
    "masked": ("ContextCompacted", "observation_masking"),
    "delegated": ("DelegationStarted", "DelegationEnded"),
    "notified": ("ApprovalRequested", "NotificationFailed", "ReceiverRefused: it answered 404"),
    "decided": ("DecisionGrounded", "trusted_context.paid"),
    "knowing": ("KnowledgeRecalled", "injected", "kept", "'none'", "tainted", "KnowledgeStored", "memory", "learnings"),
    "criticised": ("CritiqueEvaluated", "revise", "accepted"),
    "held": ("ApprovalRequested", "ApprovalResolved", "once is enough"),
    "compensated": ("SagaEnded", "compensate"),
    "alternatives-checked": ("SagaEnded", "fallback", "would not be taken back"),
    "alternatives-before": ("SagaEnded", "fallback", "1.0.s0.f0"),
    "piped": ("director_critic", "StepEvaluated", "PlanAdjusted", "DelegationEnded", "mind the gap"),
    "pursued": ("PlanMade", "PlanAdjusted", "StepEvaluated", "QuestionAnswered", "MemoryCompressed", "DecisionMade"),
    "talked": ("TurnStarted", "TurnEnded", "interrupted", "be brief", "never mind"),
    "looked-up": ("PreHydrationComplete", "https://a.io", "https://b.io", "TurnStarted"),
    "taught": ("TurnStarted", "KnowledgeStored", "memory"),
    "delegate-awaited": ("TurnStarted", "DelegationEnded", "interrupted"),
    "asked-by-templates": ("'own': ['compression', 'decision', 'evaluation', 'execution'", "MemoryCompressed"),
}
"""Words in the journals of these recordings."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_recorded(name: str) -> None:
    assert [path for path in HISTORIES if path.stem == name or path.stem.startswith(f"{name}-")]


def history_in(path: Path) -> WorkflowHistory:
    history = WorkflowHistory.from_json(path.stem, path.read_text())
    started = history.events[0].workflow_execution_started_event_attributes
    return WorkflowHistory(
        started.workflow_id, history.events
    )  # the ids of delegates are derived from that of their parent


SHARED_MODULES = ("orga.workflows.types", "orga.activities", "pydantic_core", "opentelemetry", "rapidfuzz", "minijinja")
"""Values and third-party packages. All other workflow code is imported again for each run in the sandbox."""


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays_in_the_sandbox(path: Path) -> None:
    """The SDK's sandbox refuses what is not deterministic. Workers do without it."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*SHARED_MODULES)
    await check_replay(history_in(path), SandboxedWorkflowRunner(restrictions=restrictions))


async def test_no_run_leaves_state_in_a_module_of_workflow_code() -> None:
    """Runs share these modules, because workers run them outside a sandbox."""
    before = module_state()
    assert len(before) > 100

    for path in HISTORIES:
        await check_replay(history_in(path), our_runner())

    assert module_state() == before


def module_state() -> dict[str, str]:
    """Return all mutable values of workflow modules and of their classes, by name."""
    state: dict[str, str] = {}
    modules = [(name, module) for name, module in sys.modules.items() if name.startswith("orga.workflows")]
    for name, module in modules:
        for key, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == name:
                state |= {
                    f"{name}.{key}.{own}": repr(each) for own, each in vars(value).items() if is_own_state(own, each)
                }
            elif is_own_state(key, value):
                state[f"{name}.{key}"] = repr(value)
    return state


def is_own_state(name: str, value: object) -> bool:
    is_code = isinstance(value, (type, ModuleType, FunctionType, classmethod, staticmethod, property))
    return not is_code and not name.startswith(("__", "_abc_", "model_"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_folds(client: Client, path: Path) -> None:
    """Every model call's context has its recorded digest, and the journal ends as the run did."""
    contexts, entries = await _folded(client, path)

    assert contexts.iteration > 0
    assert first_break(entries) is None
    assert effect_faults(entries) == []
    goes_on = path.stem.startswith("rolled-over") and not path.stem.endswith(_last_of("rolled-over"))
    assert entries[-1].event == "Terminated" or goes_on


@pytest.mark.parametrize("name", SHOWS)
async def test_a_recording_shows_what_its_name_promises(client: Client, name: str) -> None:
    _, entries = await _folded(client, next(path for path in HISTORIES if path.stem == name))
    reported = str([(entry.event, entry.data) for entry in entries])
    assert [word for word in SHOWS[name] if word not in reported] == []


async def _folded(client: Client, path: Path) -> tuple[ContextFold, list[JournalEntry]]:
    contexts, journal = ContextFold(), JournalFold()
    entries: list[JournalEntry] = []
    history = history_in(path)
    async for happening in read_events(converters_of(client, history), history.events):
        contexts.feed(happening)
        entries += journal.feed(happening)
    return contexts, entries


def _last_of(name: str) -> str:
    return max(path.stem for path in HISTORIES if path.stem.startswith(name)).removeprefix(name)
