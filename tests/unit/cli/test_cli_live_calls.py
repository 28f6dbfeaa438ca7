"""The block of the live view shows each call with its arguments and its own time. The meters fit on one line."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from orga.client.cli.live.screens import live_block
from orga.client.cli.shown.progress import PendingActivity, Progress
from orga.workflows.types.limits import Budgets
from tests.support.values.entries import an_entry
from tests.support.values.statuses import progress_after

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)


def drawn_lines(progress: Progress, now: datetime = NOW, width: int = 100) -> list[str]:
    console = Console(width=width, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(live_block(progress, now))
    return captured.get().splitlines()


PROPOSED = an_entry(
    "ReasoningComplete",
    iteration=3,
    actions=[
        {"tool": "read_file", "call_id": "c0", "arguments": {"path": "README.md"}},
        {"tool": "fetch_url", "call_id": "c1", "arguments": {"url": "https://example.org/a"}},
    ],
    finish="tool_calls",
)
READ = PendingActivity("3.0", "read_file", since=NOW - timedelta(seconds=1))
FETCH = PendingActivity("3.1", "fetch_url", since=NOW - timedelta(seconds=4))
COLLECTED = an_entry("ObservationsCollected", iteration=3, outcomes=[])


def acting() -> Progress:
    return progress_after(PROPOSED).with_activities((READ, FETCH), NOW)


def test_parallel_calls_are_shown_with_their_arguments_and_their_own_times() -> None:
    assert drawn_lines(acting())[:2] == ["  read_file README.md 1.0 s", "  fetch_url https://example.org/a 4.0 s"]


def test_a_finished_call_stops_counting_while_another_goes_on() -> None:
    progress = acting().with_activities((FETCH,), NOW)
    assert drawn_lines(progress, LATER)[:2] == [
        "• read_file README.md 1.0 s",
        "  fetch_url https://example.org/a 9.0 s",
    ]
    again = progress.with_activities((FETCH,), LATER)
    assert drawn_lines(again, LATER)[0] == "• read_file README.md 1.0 s"


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(COLLECTED, id="all are over"),
        pytest.param(an_entry("Terminated", iteration=3, reason="aborted"), id="the run has ended"),
    ],
)
def test_after_the_end_no_time_counts_even_if_an_older_poll_arrives_late(entry: Any) -> None:
    progress = progress_after(entry, since=acting())
    assert len(drawn_lines(progress, LATER)) == 1
    if entry is COLLECTED:
        assert len(drawn_lines(progress.with_activities((READ, FETCH), LATER), LATER)) == 1


def test_a_requeued_call_of_an_earlier_iteration_is_shown() -> None:
    sent_again = PendingActivity("3.0.q7", "save", since=NOW)
    assert drawn_lines(progress_after(COLLECTED).with_activities((sent_again,), NOW))[0] == "  save 0.0 s"


def test_a_retry_keeps_the_arguments_of_its_call_and_a_fallback_shows_its_own_name() -> None:
    again, fallback = replace(READ, activity_id="3.0.r1"), replace(FETCH, activity_id="3.1.f1", name="search_text")
    shown = drawn_lines(acting().with_activities((again, fallback), NOW))
    assert "  read_file README.md 1.0 s" in shown
    assert "  search_text 4.0 s" in shown


def test_a_call_fits_on_one_line_and_keeps_its_time() -> None:
    long = an_entry(
        "ReasoningComplete",
        iteration=3,
        actions=[{"tool": "read_file", "call_id": "c0", "arguments": {"path": "x/" * 90}}],
        finish="tool_calls",
    )
    (call, _) = drawn_lines(progress_after(long).with_activities((READ,), NOW), width=60)
    assert cell_len(call) <= 60
    assert call.endswith("… 1.0 s")


BUDGETS = Budgets(
    iterations=20,
    max_iterations=25,
    tokens=900,
    max_total_tokens=1_000_000,
    cost_usd=None,
    max_cost_usd=None,
    time_s=295.0,
    timeout_s=3_600.0,
)


def far(**fields: Any) -> Progress:
    return Progress(iteration=21, phase="reasoning", tokens=812_345, cost_usd=0.25, budgets=BUDGETS, **fields)


@pytest.mark.parametrize("width", [200, 120, 100, 80, 60])
def test_the_meters_fit_on_one_line(width: int) -> None:
    lines = drawn_lines(far(), width=width)
    assert len(lines) == 1
    assert cell_len(lines[0]) <= width
    assert "…" not in lines[0]
    assert lines[0].endswith("0.2500 USD")


def test_bars_are_dropped_before_digits_are_shortened() -> None:
    assert "█████████░░░ 812,345/1,000,000 tokens" not in drawn_lines(far(), width=80)[0]
    assert "21/25 iterations  812,345/1,000,000 tokens  0/3,600 s" in drawn_lines(far(), width=80)[0]
    assert "21/25 iter  812.3k/1M tok  0/3600 s" in drawn_lines(far(), width=60)[0]


def test_the_narrowest_line_is_cut() -> None:
    assert [cell_len(line) for line in drawn_lines(far(), width=20)] == [20]


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        pytest.param(Progress(iteration=1, tokens=1), "1 iteration  1 token  0 s", id="one"),
        pytest.param(Progress(iteration=2), "2 iterations  0 tokens", id="more"),
        pytest.param(Progress(iteration=1, budgets=BUDGETS), "1/25 iterations", id="one of a limit"),
        pytest.param(Progress(plan={"rounds": 1}), "1 round  ", id="rounds of a goal"),
    ],
)
def test_counts_are_shown_in_singular_or_plural(progress: Progress, shown: str) -> None:
    assert shown in drawn_lines(progress)[0]
