"""The screens that show a live run."""

from datetime import timedelta
from typing import Any

import pytest

from orga.client.cli.live.screens import PlainScreen
from orga.client.cli.shown.progress import DelegateStatus, PendingActivity, Progress
from orga.client.cli.shown.status_text import activity_lines, status_lines
from orga.client.journal.watcher import LiveActivity
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.questions import Choice, ShownQuestion
from orga.workflows.types.sessions.session_result import SessionStatus
from orga.workflows.types.status import Termination
from orga.workflows.types.tool_calls.breakers import Breaker
from orga.workflows.types.tool_calls.delegation import Child
from orga.workflows.types.tool_calls.recovery import DeadLetter
from tests.support.values.entries import A_RUN, an_entry
from tests.support.values.statuses import NOW, a_status, progress_after, progress_text

LACKING = Progress(task_queue="q", lacks_worker=True)


ALL: tuple[Choice, ...] = ("retry", "skip", "result", "abort")


def a_question(wait_id: str = "call-1.0-0") -> ShownQuestion:
    return ShownQuestion(wait_id=wait_id, kind="escalation", since=NOW, question="save failed: what now?", choices=ALL)


def test_progress_follows_the_journal() -> None:
    progress = progress_after(*A_RUN)
    assert (progress.agent, progress.iteration, progress.phase) == ("a", 2, "done")


def test_tokens_add_up() -> None:
    entry = an_entry("ReasoningComplete", usage={"input_tokens": 10, "output_tokens": 2}, actions=[])
    assert progress_after(entry, entry).tokens == 24


def test_all_spending_counts_and_final_sums_are_not_counted_again() -> None:
    usage = {"input_tokens": 10, "output_tokens": 2}
    sums = ("TurnEnded", "Terminated")
    spending = ("ReasoningComplete", "CritiqueEvaluated", "ContextCompacted", "DelegationEnded", *sums)
    progress = progress_after(*(an_entry(event, usage=usage) for event in spending))
    assert progress.tokens == 4 * 12


@pytest.mark.parametrize(
    ("kinds", "paused"),
    [
        pytest.param(["pause"], True, id="paused"),
        pytest.param(["pause", "resume"], False, id="resumed"),
        pytest.param(["pause", "abort"], False, id="an abort ends a pause"),
        pytest.param(["pause", "steer"], True, id="guidance does not"),
    ],
)
def test_a_pause_is_shown_until_it_ends(kinds: list[str], paused: bool) -> None:
    progress = progress_after(*(an_entry("InterventionReceived", kind=kind) for kind in kinds))
    assert progress.paused is paused


def test_a_pending_activity_sets_the_phase_before_the_journal_does() -> None:
    progress = Progress(phase="acting")
    assert progress.with_activities((PendingActivity("reason-2", "reason"),), NOW).phase == "reasoning"
    assert progress.with_activities((PendingActivity("1.0", "read_file"),), NOW).phase == "acting"


def test_the_clock_stops_while_the_run_is_paused_or_waits() -> None:
    later = NOW + timedelta(seconds=7)
    assert Progress().with_status(a_status(), NOW).clock_s(later) == pytest.approx(12.0)
    assert Progress().with_status(a_status(paused=True), NOW).clock_s(later) == pytest.approx(5.0)
    assert Progress().with_status(a_status(waiting=[a_question()]), NOW).clock_s(later) == pytest.approx(5.0)


def test_the_cost_of_a_session_is_that_of_its_turn() -> None:
    turn = UsageTotals(input_tokens=5, cost_usd=0.01)
    standing = SessionStatus.model_validate(a_status().model_dump() | {"kind": "session", "turn_usage": turn})
    assert standing.usage.cost_usd == 0.25
    assert Progress().with_status(standing, NOW).cost_usd == 0.01


def test_the_block_shows_meters_with_their_limits() -> None:
    shown = progress_text(Progress(iteration=5, tokens=900).with_status(a_status(), NOW))
    assert "5/25 iterations" in shown
    assert "900/1,000 tokens" in shown
    assert "5/300 s" in shown
    assert "0.2500 USD" in shown


def test_the_block_shows_streamed_text_without_control_sequences() -> None:
    text = "one\ntwo\n\x1b]0;owned\x07[red]three[/red]"
    shown = progress_text(Progress().with_activities((PendingActivity("reason-1", "reason", text=text),), NOW))
    assert "│ one\n│ two\n│ [red]three[/red]" in shown
    assert "owned" not in shown


def test_the_block_shows_thinking_until_there_is_text() -> None:
    for text, line in (("", "│ hm"), ("so", "│ so")):
        activity = PendingActivity("reason-1", "reason", text=text, thinking="hm")
        shown = progress_text(Progress().with_activities((activity,), NOW))
        assert [each for each in ("│ hm", "│ so") if each in shown] == [line]


def test_the_block_shows_tools_and_retries() -> None:
    runs = PendingActivity("1.0", "read_file", since=NOW - timedelta(seconds=3))
    waits = PendingActivity("1.1", "fetch_url", attempt=2, failure="Timeout: slow")
    shown = progress_text(Progress().with_activities((runs, waits), NOW))
    assert "read_file 3.0 s" in shown
    assert "fetch_url: attempt 2, after: Timeout: slow" in shown


def test_the_block_shows_how_to_start_a_worker() -> None:
    assert "waiting for a worker on task queue 'q'; start one with: orga worker" in progress_text(LACKING)


def test_plain_lines_show_a_remark_once_until_it_returns(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen()
    for progress in (LACKING, LACKING, Progress(task_queue="q"), LACKING):
        screen.show_progress(progress)
    assert capsys.readouterr().err.count("waiting for a worker") == 2


def test_plain_lines_show_a_retry_once_even_after_a_gap(
    capsys: pytest.CaptureFixture[str],
) -> None:
    retried = Progress().with_activities((PendingActivity("reason-1", "reason", attempt=2, failure="lost"),), NOW)
    screen = PlainScreen()
    for progress in (retried, Progress(), retried):
        screen.show_progress(progress)
    assert capsys.readouterr().err.count("reason: attempt 2, after: lost") == 1


DECIDED_BY = "orga resolve run call-1.0-0 --retry (or --skip, --result TEXT, --abort)"


def test_a_question_is_shown_with_its_command_until_it_is_decided() -> None:
    waiting = Progress(run_id="run").with_status(a_status(waiting=[a_question()]), NOW)
    assert "orga resolve run call-1.0-0 --retry" in progress_text(waiting)
    assert "orga resolve" not in progress_text(
        progress_after(an_entry("ApprovalResolved", id="call-1.0-0", choice="skip"), since=waiting)
    )


def test_plain_lines_show_a_question_once(capsys: pytest.CaptureFixture[str]) -> None:
    screen, waiting = PlainScreen(), Progress(run_id="run").with_status(a_status(waiting=[a_question()]), NOW)
    for progress in (waiting, waiting):
        screen.show_progress(progress)
    assert capsys.readouterr().err.count(f"waits for you: save failed: what now? → {DECIDED_BY}") == 1


def test_a_question_of_a_delegate_is_shown_with_its_own_run_id(capsys: pytest.CaptureFixture[str]) -> None:
    PlainScreen().show_progress(
        Progress(run_id="run", delegates=(DelegateStatus("run.1.0", a_status(waiting=[a_question()])),))
    )
    assert "orga resolve run.1.0 call-1.0-0 --retry" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("phase", "seen", "shown"),
    [
        pytest.param("reasoning", "waiting", "waiting", id="it waits"),
        pytest.param("preparing", "hydrating", "hydrating", id="it resolves references"),
        pytest.param("waiting", "acting", "acting", id="it no longer waits"),
        pytest.param("acting", "reasoning", "acting", id="a pending activity wins"),
        pytest.param("acting", "idle", "idle", id="a session is idle after its turn"),
    ],
)
def test_a_phase_without_activities_is_taken_from_the_status(phase: str, seen: str, shown: str) -> None:
    assert Progress(phase=phase).with_status(a_status(phase=seen), NOW).phase == shown


def test_the_block_shows_delegates_circuits_dead_letters_and_call_budgets() -> None:
    circuits = {"look": Breaker(state="open", opened_at=NOW, failures=3), "save": Breaker(failures=1)}
    budgets = a_status().budgets.model_copy(
        update={"model_calls": 1, "max_model_calls": 4, "tool_calls": 0, "max_tool_calls": 9}
    )
    status = a_status(
        breakers=circuits,
        children=[Child(workflow_id="run.1.0", agent="reader", task="read it")],
        dead_letters=[A_LETTER],
        budgets=budgets,
    )
    shown = progress_text(Progress(run_id="run").with_status(status, NOW))
    assert "⇢ reader: read it" in shown
    assert "left alone (open circuit): look\n" in shown
    assert "dead letters: 1, see: orga status run" in shown
    assert "3 of 4 model calls, 9 of 9 tool calls" in shown


A_LETTER = DeadLetter(
    letter_id="3.0", call=ToolCall(call_id="c", name="save", arguments={"text": "x"}), key="k", error="E: full", at=NOW
)


def test_a_status_is_shown_in_lines() -> None:
    budgets = a_status().budgets.model_copy(update={"model_calls": 1, "max_model_calls": 4, "max_cost_usd": 0.5})
    status = a_status(
        phase="waiting",
        budgets=budgets,
        waiting=[a_question()],
        breakers={"look": Breaker(state="half_open", opened_at=NOW)},
        children=[Child(workflow_id="run.1.0", agent="reader", task="read it")],
        dead_letters=[A_LETTER],
    )
    lines = status_lines("run", status)
    assert lines[0] == "phase      waiting"
    assert lines[3].endswith("0.2500 USD, of 1000 tokens, of 0.5 USD")
    assert lines[6] == "calls      3 of 4 model calls"
    assert lines[7].startswith("waits      escalation call-1.0-0, ")
    assert lines[7].endswith(": save failed: what now?")
    assert lines[8:] == [
        f"           → {DECIDED_BY}",
        "circuit    look: half open",
        "delegated  reader: read it (run.1.0)",
        "letter     3.0 save x: E: full",
        "           → orga requeue run 3.0",
        "tiers      none, every prompt goes to that model",
    ]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        pytest.param({"since": NOW - timedelta(seconds=7)}, "running for 7 s", id="it runs"),
        pytest.param({}, "no worker has begun it yet", id="no worker has begun it"),
        pytest.param(
            {"attempt": 7, "retry_at": NOW + timedelta(seconds=12), "failure": "it is\ndown"},
            "attempt 7, in 12 s, after: it is down",
            id="it is tried again later",
        ),
        pytest.param(
            {"attempt": 2, "since": NOW - timedelta(minutes=3)},
            "attempt 2, running for 3 min, after: silence",
            id="it is tried again now",
        ),
    ],
)
def test_a_status_shows_calls_in_flight_with_their_last_failure(fields: dict[str, Any], shown: str) -> None:
    live = LiveActivity(run="run", activity_id="1", name="reason", **fields)
    assert activity_lines([live], NOW) == [f"in flight  reason: {shown}"]


@pytest.mark.parametrize(
    ("plan", "shown"),
    [
        pytest.param(None, "iteration  5 of 25", id="an agent's run counts iterations"),
        pytest.param({"rounds": 1, "steps": []}, "round      1 of 25", id="a goal counts rounds, not turns"),
    ],
)
def test_a_status_shows_what_the_limit_counts(plan: Any, shown: str) -> None:
    assert shown in status_lines("run", a_status(plan=plan))


@pytest.mark.parametrize(
    ("letter", "fields", "shown"),
    [
        pytest.param({"requeued": True}, {}, "will be sent again", id="requeued"),
        pytest.param(
            {"requeued": True},
            {"termination": Termination(reason="aborted")},
            "→ orga requeue run 3.0 --fork",
            id="requeued, but the run ended before",
        ),
    ],
)
def test_a_dead_letter_is_shown_with_its_next_step(letter: dict[str, Any], fields: dict[str, Any], shown: str) -> None:
    status = a_status(dead_letters=[A_LETTER.model_copy(update=letter)], **fields)
    assert any(line.strip() == shown for line in status_lines("run", status))


def a_step(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": f"s{number}", "skill": "look", "goal": f"look {number}", "status": "open", "score": None, **fields}


A_PLAN = {
    "rounds": 3,
    "steps": [
        *(a_step(number, status="done", score=4.25, quality="good") for number in range(1, 9)),
        a_step(9, status="failed", error="fell down"),
        a_step(10),
    ],
    "trend": "IMPROVING",
    "average": 3.5,
    "slope": 0.25,
}


def test_the_plan_of_a_goal_is_shown_with_its_latest_steps_and_rounds() -> None:
    shown = progress_text(Progress(iteration=9).with_status(a_status(plan=A_PLAN), NOW))
    for reported in (
        "… 2 steps before",
        "✓ s3 look: look 3  4.25 good",
        "✗ s9 look: look 9",
        "fell down",
        "· s10 look: look 10",
        "scores: improving (+0.25 a round), 3.50 on average",
        "3/25 rounds",
    ):
        assert reported in shown, reported
    assert "s2 look" not in shown
    assert "iterations" not in shown


def test_status_lists_all_steps_of_a_goal() -> None:
    lines = status_lines("g", a_status(plan=A_PLAN))
    assert [line.split()[2] for line in lines if line.startswith("step ")] == [f"s{n}" for n in range(1, 11)]
    assert "scores     improving (+0.25 a round), 3.50 on average" in lines
    assert "round      3 of 25" in lines
