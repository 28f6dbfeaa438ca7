"""Repeated denials."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.tool_calls.repeated_calls import (
    answer_denial_name,
    call_denial_name,
    denial_streaks,
    similarity_threshold,
)
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.recovery import StepIteration
from tests.support.values.core import a_call
from tests.support.values.strategies import LAW

NO = Verdict(decision="deny", reason="no")


@pytest.mark.parametrize(
    ("before", "denied", "after"),
    [
        pytest.param({}, [], {}, id="nothing was denied"),
        pytest.param({}, ["a"], {"a": 1}, id="a first denial"),
        pytest.param({"a": 1}, ["a"], {"a": 2}, id="a repeated denial"),
        pytest.param({"a": 2}, [], {}, id="no repeated denial"),
        pytest.param({"a": 2}, ["b"], {"b": 1}, id="another denial instead"),
        pytest.param({"a": 2}, ["a", "b"], {"a": 3, "b": 1}, id="another denial as well"),
    ],
)
def test_denial_streaks_are_counted(before: dict[str, int], denied: list[str], after: dict[str, int]) -> None:
    assert denial_streaks(before, denied) == after


FIRST = "rm: the path /data/1041 is outside of the workspace"
VARIED = "rm: the path /data/1042 is outside of the workspace"
OTHER = "rm: needs an approval"


@pytest.mark.parametrize(
    ("before", "denied", "after"),
    [
        pytest.param({FIRST: 1}, [VARIED], {VARIED: 2}, id="a varying detail, with the newest text kept"),
        pytest.param({FIRST: 1}, [OTHER], {OTHER: 1}, id="another reason"),
        pytest.param({FIRST: 1}, [VARIED.replace("rm", "mv")], {VARIED.replace("rm", "mv"): 1}, id="another tool"),
        pytest.param({FIRST: 2}, [FIRST, VARIED], {FIRST: 3}, id="twice in one iteration counts once"),
        pytest.param({FIRST: 2}, [OTHER, VARIED], {OTHER: 1, VARIED: 3}, id="another denial as well"),
        pytest.param({"rm: ": 1}, ["rm: "], {"rm: ": 2}, id="without a reason"),
        pytest.param({"rm: kitten": 1}, ["rm: sitting"], {"rm: sitting": 1}, id="less alike than the threshold"),
    ],
)
def test_similar_reasons_count_as_one_denial(before: dict[str, int], denied: list[str], after: dict[str, int]) -> None:
    assert denial_streaks(before, denied, 0.85) == after


def test_the_threshold_is_inclusive() -> None:
    assert denial_streaks({"rm: kitten": 1}, ["rm: sitting"], 4 / 7) == {"rm: sitting": 2}
    assert denial_streaks({"rm: kitten": 1}, ["rm: sitting"], 4 / 7 + 0.001) == {"rm: sitting": 1}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(None, 0.85, id="the default"),
        pytest.param(StepIteration(similarity_threshold=0.5), 0.5, id="as configured"),
        pytest.param(StepIteration(enabled=False), 1.0, id="equality when it is off"),
    ],
)
def test_the_threshold_comes_from_the_step_settings(steps: StepIteration | None, expected: float) -> None:
    assert similarity_threshold(LoopConfig(step_iteration=steps)) == expected


@LAW
@given(st.lists(st.sets(st.sampled_from("abc")), max_size=10))
def test_a_streak_counts_consecutive_iterations(iterations: list[set[str]]) -> None:
    streaks: dict[str, int] = {}
    for denied in iterations:
        streaks = denial_streaks(streaks, sorted(denied))
    for denial in "abc":
        in_a_row = next((n for n, d in enumerate(reversed(iterations)) if denial not in d), len(iterations))
        assert streaks.get(denial, 0) == in_a_row


def test_a_denial_is_identified_by_tool_and_reason() -> None:
    one = call_denial_name(a_call("rm", path="a"), NO)
    assert call_denial_name(a_call("rm", "other", path="b"), NO) == one
    assert call_denial_name(a_call("ls", path="a"), NO) != one
    assert call_denial_name(a_call("rm"), Verdict(decision="deny", reason="never")) != one
    assert answer_denial_name(NO) == "final answer: no"
