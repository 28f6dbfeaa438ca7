"""The durations of calls, which are kept outside the journal."""

from datetime import UTC, datetime, timedelta
from typing import Any

from orga.client.cli.shown.narration import entry_lines
from orga.client.journal.phases import GoalPhases
from orga.client.journal.run_view import RunView
from orga.workflows.decisions.journal.entries import canonical_line
from orga.workflows.decisions.journal.iteration import CallTimes
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.status import Happening, HappeningKind
from orga.workflows.types.tool_calls.delegation import child_id
from tests.support.values.entries import an_entry

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(kind: HappeningKind, key: str, s: float, name: str = "look") -> Happening:
    return Happening(kind=kind, at=T0 + timedelta(seconds=s), event_id=1, name=name, key=key)


REPLY = Reply.of(calls=[ToolCall(call_id=f"c{n}", name="look", arguments={}) for n in range(4)])


def call_seconds(*happenings: Happening) -> dict[str, float]:
    times = CallTimes()
    for happening in happenings:
        times.take_event(happening)
    return times.call_seconds(2, REPLY)


def test_parallel_calls_have_their_own_times() -> None:
    assert call_seconds(
        at("scheduled", "2.0", 1.0),
        at("scheduled", "2.1", 1.0),
        at("finished", "2.1", 1.5),
        at("failed", "2.0", 4.0),
    ) == {"c0": 3.0, "c1": 0.5}


def test_the_duration_includes_recovery_but_not_a_requeued_letter() -> None:
    assert call_seconds(
        at("scheduled", "2.0", 1.0),
        at("failed", "2.0", 2.0),
        at("scheduled", "2.0.f1", 2.0, "other"),
        at("finished", "2.0.f1", 5.0, "other"),
        at("finished", "2.0.q7", 60.0),
    ) == {"c0": 4.0}


def test_a_delegated_run_counts_as_a_call_and_activities_of_the_loop_do_not() -> None:
    child = child_id("run", "2.3")
    assert call_seconds(
        at("child_started", child, 1.0, "AgentWorkflow"),
        at("child_finished", child, 9.0, ""),
        at("scheduled", "2.1", 0.0, "critique"),
        at("finished", "2.1", 1.0, "critique"),
    ) == {"c3": 8.0}


def test_a_local_call_has_no_duration() -> None:
    assert call_seconds(at("finished", "2.0", 3.0)) == {}


def timeline_lines(outcomes: list[dict[str, Any]], times: dict[str, float]) -> list[str]:
    run = RunView()
    run.take(an_entry("ToolsDispatched", 1.0))
    entry = an_entry("ObservationsCollected", 4.0, outcomes=outcomes).with_display(times, {})
    return [line.text for line in entry_lines(run.take(entry))]


def test_the_timeline_shows_the_duration_of_each_call() -> None:
    outcomes = [{"tool": "look", "call_id": f"c{n}", "outcome": "ok"} for n in range(3)]
    assert timeline_lines(outcomes, {"c0": 0.5, "c1": 3.0}) == ["✓ look (0.50 s)", "✓ look (3.00 s)", "✓ look (3.00 s)"]


def test_an_export_contains_no_durations() -> None:
    entry = an_entry("ObservationsCollected", outcomes=[])
    assert canonical_line(entry.with_display({"c0": 1.0}, {"c0": "."})) == canonical_line(entry)
    assert "took" not in entry.with_display({"c0": 1.0}, {}).model_dump_json()


def test_a_pause_between_two_phases_of_a_goal_counts_to_the_later_phase() -> None:
    goal = GoalPhases()
    for event, at_s, turn in [
        ("ReasoningComplete", 1.0, "goal_plan"),
        ("InterventionApplied", 3_600.0, ""),
        ("ReasoningComplete", 3_601.0, "goal_decide"),
    ]:
        goal.take(an_entry(event, at_s, turn=turn, kind="resume", finish="stop"))
    assert [(phase.phase, phase.duration_s) for phase in goal.phases] == [("plan", 0.0), ("decide", 3_600.0)]
