"""What a viewer sees of a run that goes on."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from client.cli.live_screen import block
from client.cli.progress import InFlight, Progress
from client.cli.screen import PlainScreen
from tests.unit.test_cli_narration import A_RUN, an_entry
from workflows.types.status import AgentStatus, Budgets
from workflows.types.usage import ToolCallCounts, UsageTotals

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
LACKING = Progress(task_queue="q", lacks_worker=True)


def drawn(progress: Progress) -> str:
    console = Console(width=120, record=True, markup=False, emoji=False, quiet=False)
    with console.capture() as captured:
        console.print(block(progress, NOW))
    return captured.get()


def a_status(*, paused: bool = False) -> AgentStatus:
    budgets = Budgets(
        iterations=20,
        max_iterations=25,
        tokens=900,
        max_total_tokens=1_000,
        cost_usd=None,
        max_cost_usd=None,
        time_s=295.0,
        timeout_s=300.0,
    )
    return AgentStatus(
        agent="a",
        model="m",
        phase="reasoning",
        paused=paused,
        iteration=5,
        usage=UsageTotals(cost_usd=0.25),
        tool_calls=ToolCallCounts(),
        budgets=budgets,
        pending_approvals=[],
        plan=None,
        question=None,
        breakers={},
        unread_interventions=[],
        termination=None,
    )


def test_progress_follows_the_journal() -> None:
    progress = Progress()
    for entry in A_RUN:
        progress = progress.with_entry(entry)
    assert (progress.agent, progress.iteration, progress.phase) == ("a", 2, "done")


def test_tokens_add_up() -> None:
    entry = an_entry("ReasoningComplete", usage={"input_tokens": 10, "output_tokens": 2}, actions=[])
    assert Progress().with_entry(entry).with_entry(entry).tokens == 24


@pytest.mark.parametrize(
    ("kinds", "paused"),
    [
        pytest.param(["pause"], True, id="paused"),
        pytest.param(["pause", "resume"], False, id="resumed"),
        pytest.param(["pause", "abort"], False, id="an abort ends a pause"),
        pytest.param(["pause", "steer"], True, id="guidance does not"),
    ],
)
def test_a_pause_is_seen(kinds: list[str], paused: bool) -> None:
    progress = Progress()
    for kind in kinds:
        progress = progress.with_entry(an_entry("InterventionReceived", kind=kind))
    assert progress.paused is paused


def test_what_is_in_flight_names_the_phase_before_the_journal_does() -> None:
    progress = Progress(phase="acting")
    assert progress.with_in_flight((InFlight("reason-2", "reason"),)).phase == "reasoning"
    assert progress.with_in_flight((InFlight("1.0", "read_file"),)).phase == "acting"


def test_the_clock_stands_still_while_paused() -> None:
    later = NOW + timedelta(seconds=7)
    assert Progress().with_status(a_status(), NOW).clock_s(later) == pytest.approx(12.0)
    assert Progress().with_status(a_status(paused=True), NOW).clock_s(later) == pytest.approx(5.0)


def test_the_block_has_meters_with_their_limits() -> None:
    shown = drawn(Progress(iteration=5, tokens=900).with_status(a_status(), NOW))
    assert "5/25 iterations" in shown
    assert "900/1,000 tokens" in shown
    assert "5/300 s" in shown
    assert "0.2500 USD" in shown


def test_the_block_shows_streamed_text_that_cannot_act() -> None:
    text = "one\ntwo\n\x1b]0;owned\x07[red]three[/red]"
    shown = drawn(Progress().with_in_flight((InFlight("reason-1", "reason", text=text),)))
    assert "one\ntwo\n[red]three[/red]" in shown
    assert "owned" not in shown


def test_the_block_shows_tools_and_retries() -> None:
    runs = InFlight("1.0", "read_file", since=NOW - timedelta(seconds=3))
    waits = InFlight("1.1", "fetch_url", attempt=2, failure="Timeout: slow")
    shown = drawn(Progress().with_in_flight((runs, waits)))
    assert "read_file 3.0 s" in shown
    assert "fetch_url: attempt 2, after: Timeout: slow" in shown


def test_the_block_says_how_to_get_a_worker() -> None:
    assert "waiting for a worker on task queue 'q'; start one with: orga worker" in drawn(LACKING)


def test_plain_lines_say_each_remark_once_and_again_when_it_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen()
    for progress in (LACKING, LACKING, Progress(task_queue="q"), LACKING):
        screen.frame(progress)
    assert capsys.readouterr().err.count("waiting for a worker") == 2


def test_plain_lines_say_a_retry_once_though_it_is_out_of_sight_for_a_moment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    retried = Progress().with_in_flight((InFlight("reason-1", "reason", attempt=2, failure="lost"),))
    screen = PlainScreen()
    for progress in (retried, Progress(), retried):
        screen.frame(progress)
    assert capsys.readouterr().err.count("reason: attempt 2, after: lost") == 1
