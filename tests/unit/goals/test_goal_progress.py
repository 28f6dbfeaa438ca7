"""Quality, trend, streaks and the rules before any decision of a model, tested at each boundary."""

from typing import Any

import pytest

from orga.workflows.decisions.goals.progress import (
    decision_by_rules,
    is_repeating_rounds,
    quality_from_mean,
    result_confidence,
    round_signature,
    score_trend,
    stuck_reason,
)
from orga.workflows.decisions.goals.pursue import with_evaluation, with_round_outcomes
from orga.workflows.types.goals.goal_input import GoalConfig
from orga.workflows.types.goals.pursuit import PlanStep, Pursuit, Scores
from tests.support.values.core import a_call
from tests.support.values.goals import a_goal, a_turn, all_of, step_outcomes

CONFIG = GoalConfig()


def scores(mean: float) -> Scores:
    return Scores(relevance=mean, completeness=mean, usability=mean, goal_progress=mean)


def a_step(step_id: str, state: Any = "open", mean: float | None = None, *needs: str) -> PlanStep:
    worth = None if mean is None else scores(mean)
    return PlanStep(id=step_id, goal="g", skill="read", state=state, scores=worth, depends_on=needs)


@pytest.mark.parametrize(
    ("mean", "quality"),
    [(5, "good"), (3.5, "good"), (3.49, "partial"), (2.0, "partial"), (1.99, "failed"), (1, "failed")],
)
def test_quality_follows_from_the_mean(mean: float, quality: str) -> None:
    assert quality_from_mean(mean) == quality


@pytest.mark.parametrize(
    ("means", "average", "slope", "word"),
    [
        ([3.0], 3.0, 0.0, "stable"),
        ([3.0, 3.3], 3.15, 0.3, "stable"),
        ([3.0, 3.301], 3.151, 0.301, "improving"),
        ([3.0, 2.7], 2.85, -0.3, "stable"),
        ([3.0, 2.699], 2.849, -0.301, "DEGRADING"),
        ([5.0, 1.0, 3.0, 1.0], 1.667, 0.0, "stable"),
        ([4.0, 3.5, 3.3], 3.6, -0.35, "DEGRADING"),
    ],
)
def test_the_trend_covers_the_last_three_scores(means: list[float], average: float, slope: float, word: str) -> None:
    trend = score_trend(means)
    assert trend is not None
    assert (trend.average, trend.slope, trend.word) == (average, slope, word)


def test_without_scores_there_is_no_trend() -> None:
    assert score_trend([]) is None


@pytest.mark.parametrize("name", ["errors", "bad", "unusable", "adjusted"])
def test_each_streak_is_counted_separately_and_ends_the_goal_at_three(name: str) -> None:
    two = {"errors": 2, "bad": 2, "unusable": 2, "adjusted": 2}
    assert stuck_reason(Pursuit.model_validate(two), CONFIG) == ""
    assert stuck_reason(Pursuit.model_validate({name: 3}), CONFIG)


def rounds(*calls: dict[str, Any]) -> tuple[str, ...]:
    """Return the signatures of rounds with one call each."""
    return tuple(round_signature([a_call("read", **arguments)]) for arguments in calls)


A = {"path": "docs/report.md"}
PAGES = tuple({"path": "docs/report-of-the-year.md", "page": page} for page in range(3))
FILES = tuple({"path": f"reports/of/the/year/1999/report-part-{part}.md"} for part in range(3))
DATES = tuple({"query": f"what was decided in the meeting of 2026-01-0{day}"} for day in range(1, 4))
FLAGS = tuple({"path": "reports/of/the/year/1999/report.md", "deep": 1, "at": at} for at in (True, 1, 1.0))


@pytest.mark.parametrize(
    ("calls", "errors", "is_round"),
    [
        pytest.param([A, A], 2, False, id="two equal rounds are no loop"),
        pytest.param([A, A, A], 0, True, id="three equal rounds are a loop, even if good"),
        pytest.param([A, {"path": "z"}, A], 3, False, id="another call between"),
        pytest.param(PAGES, 0, False, id="pages of a file"),
        pytest.param(FILES, 0, False, id="numbered files"),
        pytest.param(DATES, 0, False, id="dates"),
        pytest.param(FLAGS, 0, False, id="values that are equal in Python alone"),
        pytest.param(FILES, 2, False, id="numbered files with one success"),
        pytest.param(FILES, 3, True, id="numbered files that all failed"),
        pytest.param([A, {"path": "z"}, {"query": "x"}], 3, False, id="other calls that all failed"),
    ],
)
def test_equal_rounds_are_a_loop_and_similar_ones_only_if_all_failed(
    calls: list[dict[str, Any]], errors: int, is_round: bool
) -> None:
    assert is_repeating_rounds(Pursuit(recent=rounds(*calls), errors=errors)) is is_round


@pytest.mark.parametrize("calls", [PAGES, FILES, DATES], ids=["pages", "files", "dates"])
def test_partly_good_rounds_are_no_loop(calls: tuple[dict[str, Any], ...]) -> None:
    state = a_goal(*(a_step(f"s{number}").with_fields(arguments=each) for number, each in enumerate(calls)))
    for step in state.pursuit.steps:
        state = state.with_pursuit(due=(step.id,))
        state = with_evaluation(
            with_round_outcomes(state, step_outcomes(state, ["ok"])), a_turn(steps=[{"id": step.id, **all_of(3)}])
        )
    assert (state.pursuit.rounds, stuck_reason(state.pursuit, CONFIG)) == (3, "")


def test_a_signature_ignores_the_order() -> None:
    one, other = a_call("read", path="a", line=1), a_call("list", path="b")
    assert round_signature([one, other]) == round_signature([other, a_call("read", line=1, path="a")])
    assert round_signature([one]) != round_signature([other])


DONE = a_step("a", "done", 4)


@pytest.mark.parametrize(
    ("pursuit", "expected"),
    [
        pytest.param(Pursuit(errors=3, is_guided=True), "stuck", id="a streak wins over everything"),
        pytest.param(Pursuit(steps=(DONE,), due=("a",)), "done", id="all is done, and good"),
        pytest.param(Pursuit(steps=(DONE,), due=("a",), is_guided=True), None, id="guidance is handled first"),
        pytest.param(
            Pursuit(steps=(a_step("a", "done", 3.49),), due=("a",)), None, id="all is done, not all of it good"
        ),
        pytest.param(Pursuit(steps=(a_step("a", "done"),), due=("a",)), None, id="an unscored step is not good"),
        pytest.param(Pursuit(steps=(a_step("f", "failed"), DONE), due=("a",)), None, id="an earlier step failed"),
        pytest.param(Pursuit(steps=(DONE, a_step("b")), due=("a",)), "continue", id="a step can be done"),
        pytest.param(
            Pursuit(steps=(a_step("a", "done", 2), a_step("b")), due=("a",)), "continue", id="partial goes on"
        ),
        pytest.param(Pursuit(steps=(a_step("a", "failed"), a_step("b")), due=("a",)), None, id="the latest failed"),
        pytest.param(Pursuit(steps=(DONE, a_step("b", "open", None, "f")), due=("a",)), None, id="no step can be done"),
        pytest.param(Pursuit(), None, id="nothing was planned"),
    ],
)
def test_the_next_action_follows_from_rules_without_a_model(pursuit: Pursuit, expected: str | None) -> None:
    assert decision_by_rules(pursuit, CONFIG) == expected


def test_confidence_is_measured_and_can_only_be_lowered_by_the_model() -> None:
    steps = [a_step("a", "done", 5), a_step("b", "done", 3), a_step("c", "failed", 1), a_step("d")]
    assert result_confidence(steps) == 0.375
    assert result_confidence(steps, 0.2) == 0.2
    assert result_confidence(steps, 0.99) == 0.375
    assert result_confidence([]) == 0.0
