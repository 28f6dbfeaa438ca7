"""Denials that come again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.core import a_call
from tests.support.strategies import LAW
from workflows.decisions.denials import denial_of_answer, denial_of_call, denial_streaks
from workflows.types.gate import Verdict

NO = Verdict(decision="deny", reason="no")


@pytest.mark.parametrize(
    ("before", "denied", "after"),
    [
        pytest.param({}, [], {}, id="nothing was denied"),
        pytest.param({}, ["a"], {"a": 1}, id="a first denial"),
        pytest.param({"a": 1}, ["a"], {"a": 2}, id="it came again"),
        pytest.param({"a": 2}, [], {}, id="it did not come again"),
        pytest.param({"a": 2}, ["b"], {"b": 1}, id="another came instead"),
        pytest.param({"a": 2}, ["a", "b"], {"a": 3, "b": 1}, id="another came beside it"),
    ],
)
def test_denial_streaks(before: dict[str, int], denied: list[str], after: dict[str, int]) -> None:
    assert denial_streaks(before, denied) == after


@LAW
@given(st.lists(st.sets(st.sampled_from("abc")), max_size=10))
def test_a_streak_counts_the_iterations_in_a_row_up_to_now(iterations: list[set[str]]) -> None:
    streaks: dict[str, int] = {}
    for denied in iterations:
        streaks = denial_streaks(streaks, sorted(denied))
    for denial in "abc":
        in_a_row = next((n for n, d in enumerate(reversed(iterations)) if denial not in d), len(iterations))
        assert streaks.get(denial, 0) == in_a_row


def test_other_arguments_do_not_make_another_denial_but_another_reason_or_tool_does() -> None:
    one = denial_of_call(a_call("rm", path="a"), NO)
    assert denial_of_call(a_call("rm", "other", path="b"), NO) == one
    assert denial_of_call(a_call("ls", path="a"), NO) != one
    assert denial_of_call(a_call("rm"), Verdict(decision="deny", reason="never")) != one
    assert denial_of_answer(NO) == "final answer: no"
