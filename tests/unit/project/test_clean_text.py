"""Text that goes to the history is always UTF-8."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from orga.workflows.types.text import clean_json, clean_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain", "plain", id="ASCII"),
        pytest.param("né 😀 \ufeff", "né 😀 \ufeff", id="any other text"),
        pytest.param("\ud83d\ude00", "😀", id="surrogate pairs are joined"),
        pytest.param("a\ud83db", "a\ufffdb", id="a lone surrogate is replaced"),
        pytest.param("a\x00b", "a\ufffdb", id="NUL is replaced"),
        pytest.param("é\x00", "é\ufffd", id="NUL after other text"),
    ],
)
def test_clean_text(text: str, expected: str) -> None:
    assert clean_text(text) == expected


@given(st.text(st.characters()))
def test_clean_text_can_be_serialised_and_is_stable(text: str) -> None:
    cleaned = clean_text(text)
    assert to_json(cleaned)
    assert clean_text(cleaned) == cleaned


def test_every_string_of_a_value_is_cleaned() -> None:
    assert clean_json({"\ud800": ["\x00", 1, None, {"a": "b"}]}) == {"\ufffd": ["\ufffd", 1, None, {"a": "b"}]}
