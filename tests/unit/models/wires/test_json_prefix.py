"""Text is cut by its size in JSON, in which a quote takes two bytes and a control character six."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from orga.workflows.types.text import json_prefix


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("abc", 3, "abc"),
        ("abc", 2, "ab"),
        ("abc", 0, ""),
        ("abc", -5, ""),
        ('"""', 4, '""'),
        ("\x01\x01", 11, "\x01"),
        ("é😀", 5, "é"),
        ("é😀", 6, "é😀"),
    ],
)
def test_a_prefix_is_measured_in_bytes_of_json(text: str, most: int, expected: str) -> None:
    assert json_prefix(text, most) == expected


@given(st.text(), st.integers(0, 50))
def test_a_prefix_is_the_longest_that_fits(text: str, most: int) -> None:
    found = json_prefix(text, most)
    assert text.startswith(found)
    assert len(to_json(found)) - 2 <= most
    assert found == text or len(to_json(text[: len(found) + 1])) - 2 > most
