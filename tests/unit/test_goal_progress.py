"""Quality, trend, streaks and the rules before any decision: each boundary on both of its sides."""

from typing import Any

import pytest

from orga.workflows.decisions.goals.progress import (
    confidence_of,
    foregone,
    is_going_round,
    quality_of,
    signature,
    stuck,
    trend_of,
)
from orga.workflows.types.goals.input import GoalConfig
from orga.workflows.types.goals.pursuit import PlanStep, Pursuit, Scores
from tests.support.values.core import a_call

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
    assert quality_of(mean) == quality


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
def test_a_trend_is_that_of_the_last_three(means: list[float], average: float, slope: float, word: str) -> None:
    trend = trend_of(means)
    assert trend is not None
    assert (trend.average, trend.slope, trend.word) == (average, slope, word)


def test_without_scores_there_is_no_trend() -> None:
    assert trend_of([]) is None


@pytest.mark.parametrize("name", ["errors", "bad", "unusable", "adjusted"])
def test_each_streak_is_counted_apart_and_ends_it_at_its_third(name: str) -> None:
    two = {"errors": 2, "bad": 2, "unusable": 2, "adjusted": 2}
    assert stuck(Pursuit.model_validate(two), CONFIG) == ""
    assert stuck(Pursuit.model_validate({name: 3}), CONFIG)


A, NEAR, FAR = (signature([a_call("read", path=path)]) for path in ("docs/report-one.md", "docs/report-onf.md", "z"))


@pytest.mark.parametrize(
    ("recent", "unhelpful", "is_round"),
    [
        pytest.param((A, A), 9, False, id="twice is no circle"),
        pytest.param((A, A, A), 0, True, id="three times is"),
        pytest.param((A, FAR, A), 9, False, id="something else between"),
    ],
)
def test_equal_rounds_are_told(recent: tuple[str, ...], unhelpful: int, is_round: bool) -> None:
    assert is_going_round(Pursuit(recent=recent, unhelpful=unhelpful)) is is_round


def test_nearly_equal_rounds_count_where_none_was_good() -> None:
    """Pages of one file are nearly equal calls, and each may be what was wanted."""
    recent = tuple(signature([a_call("read", path="docs/report.md", page=page)]) for page in range(3))
    assert not is_going_round(Pursuit(recent=recent, unhelpful=2))
    assert is_going_round(Pursuit(recent=recent, unhelpful=3))


def test_a_signature_knows_no_order() -> None:
    one, other = a_call("read", path="a", line=1), a_call("list", path="b")
    assert signature([one, other]) == signature([other, a_call("read", line=1, path="a")])
    assert signature([one]) != signature([other])


DONE = a_step("a", "done", 4)


@pytest.mark.parametrize(
    ("pursuit", "expected"),
    [
        pytest.param(Pursuit(errors=3, is_guided=True), "stuck", id="a streak wins over all"),
        pytest.param(Pursuit(steps=(DONE,), due=("a",)), "done", id="all is done, and good"),
        pytest.param(Pursuit(steps=(DONE,), due=("a",), is_guided=True), None, id="people are heard first"),
        pytest.param(
            Pursuit(steps=(a_step("a", "done", 3.49),), due=("a",)), None, id="all is done, not all of it good"
        ),
        pytest.param(Pursuit(steps=(a_step("a", "done"),), due=("a",)), None, id="what nobody judged is not good"),
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
def test_what_is_next_without_a_model(pursuit: Pursuit, expected: str | None) -> None:
    assert foregone(pursuit, CONFIG) == expected


def test_confidence_is_what_was_measured_and_words_only_lower_it() -> None:
    steps = [a_step("a", "done", 5), a_step("b", "done", 3), a_step("c", "failed", 1), a_step("d")]
    assert confidence_of(steps) == 0.375
    assert confidence_of(steps, 0.2) == 0.2
    assert confidence_of(steps, 0.99) == 0.375
    assert confidence_of([]) == 0.0
