"""The similarity of texts is bounded, and no input makes it slow."""

import pytest
from hypothesis import given

from orga.workflows.decisions.tool_calls.repeated_calls import MAX_COMPARED_CHARS, similarity
from tests.support.values.strategies import LAW, any_text


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [
        pytest.param("", "", 1.0, 1.0, id="both empty"),
        pytest.param("", "a", 0.0, 0.0, id="one empty"),
        pytest.param("same", "same", 1.0, 1.0, id="equal"),
        pytest.param("kitten", "sitting", 0.5, 0.6, id="three edits in seven"),
        pytest.param("abc", "xyz", 0.0, 0.1, id="nothing in common"),
        pytest.param("höhe", "hohe", 0.75, 0.75, id="characters, not bytes"),
        pytest.param("timeout after 1041 ms", "timeout after 1042 ms", 0.95, 0.99, id="a number that varies"),
    ],
)
def test_similarity_is_within_bounds(one: str, other: str, low: float, high: float) -> None:
    assert low <= similarity(one, other) <= high


@LAW
@given(any_text, any_text)
def test_similarity_is_symmetric_bounded_and_one_only_for_equal_texts(one: str, other: str) -> None:
    assert similarity(one, other) == similarity(other, one)
    assert 0.0 <= similarity(one, other) <= 1.0
    assert (similarity(one, other) == 1.0) is (one == other)


def test_only_the_start_of_a_text_is_compared() -> None:
    long = "x" * MAX_COMPARED_CHARS
    assert similarity(long + "a" * 10_000_000, long + "b" * 10_000_000) == 1.0
    assert similarity("a" + long, "b" + long) < 1.0
