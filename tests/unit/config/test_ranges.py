"""Ranges of messages: the same part of a conversation, however it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.types.messages import (
    Ranges,
    messages_within,
    messages_without,
    range_indexes,
    ranges_length,
    ranges_of,
)
from tests.support.values.core import user
from tests.support.values.strategies import LAW

MESSAGES = tuple(user(str(number)) for number in range(10))
parts = st.sets(st.integers(0, 9))


@LAW
@given(parts)
def test_ranges_contain_exactly_their_indexes(part: set[int]) -> None:
    ranges = ranges_of(part)
    assert range_indexes(ranges) == part
    assert ranges_length(ranges) == len(part)


@LAW
@given(parts)
def test_a_part_and_the_rest_are_the_whole(part: set[int]) -> None:
    ranges = ranges_of(part)
    assert [int(message.text) for message in messages_within(MESSAGES, ranges)] == sorted(part)
    assert [int(message.text) for message in messages_without(MESSAGES, ranges)] == sorted(set(range(10)) - part)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        pytest.param([], (), id="nothing"),
        pytest.param([3], ((3, 4),), id="one"),
        pytest.param([3, 1, 2], ((1, 4),), id="neighbours form one range"),
        pytest.param([1, 2, 4], ((1, 3), (4, 5)), id="a gap separates them"),
    ],
)
def test_ranges_of(part: list[int], expected: Ranges) -> None:
    assert ranges_of(part) == expected
