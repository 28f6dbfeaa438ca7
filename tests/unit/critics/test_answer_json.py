"""A final answer is parsed as JSON, and its writer gets feedback if it is not JSON."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from orga.workflows.types.json_text import MAX_DEPTH, parsed_answer_json, parsed_last_line
from tests.support.values.strategies import LAW, any_text, json_values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('{"a": 1}', {"a": 1}, id="an object"),
        pytest.param(' \n[1, "é"]\n', [1, "é"], id="blanks around it"),
        pytest.param("null", None, id="null"),
        pytest.param('"text"', "text", id="a string"),
        pytest.param('```json\n{"a": 1}\n```', {"a": 1}, id="a fence with its language"),
        pytest.param("```\n3\n```\n", 3, id="a fence without"),
        pytest.param('```json\n{"a":\n 1}```', {"a": 1}, id="a fence closed on the last line"),
        pytest.param('{"a": "```"}', {"a": "```"}, id="backticks within"),
        pytest.param('<think>\nIs {"a": 2} it?\n</think>\n\n{"a": 1}', {"a": 1}, id="thinking before it"),
        pytest.param("<think></think>[1]", [1], id="no thought at all"),
        pytest.param("<thinking>hm</thinking>```json\n3\n```", 3, id="another name, and a fence"),
        pytest.param('It is 1.\n</think>\n{"a": 1}', {"a": 1}, id="thinking without its start tag"),
        pytest.param('<think>x</think>{"a": "</think>"}', {"a": "</think>"}, id="an end of thinking in the answer"),
        pytest.param('{"a": "<think>b</think>"}', {"a": "<think>b</think>"}, id="thinking in the answer"),
        pytest.param("123456789012345678901234567890", 123456789012345678901234567890, id="a large integer"),
        pytest.param("[" * MAX_DEPTH + "]" * MAX_DEPTH, None, id="as deep as may be"),
    ],
)
def test_json_alone_is_an_answer(text: str, value: Any) -> None:
    assert parsed_answer_json(text) == (from_json(text) if "[" * MAX_DEPTH in text else value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('found it\n{"a": 1}', {"a": 1}),
        ("1", 1),
        ("1\nno", None),
        ("NaN", None),
        ('{"a": 1e999}', None),
        ('"\\ud800"', None),
        ("1" * 5_000, None),
        ("[" * 101 + "]" * 101, None),
    ],
)
def test_a_last_line_is_a_value_only_if_it_can_be_written_again(text: str, value: Any) -> None:
    assert parsed_last_line(text) == value


@pytest.mark.parametrize(
    ("text", "feedback"),
    [
        pytest.param("", "it is not JSON alone: Expecting value at character 0, at its end", id="nothing"),
        pytest.param("Paris", "Expecting value at character 0, where it says 'Paris'", id="prose"),
        pytest.param("<think>hm</think>", "Expecting value at character 0, at its end", id="nothing but thinking"),
        pytest.param('<think>hm {"a": 1}', "Expecting value at character 0", id="thinking without an end"),
        pytest.param('Here: {"a": 1}', "at character 0, where it says 'Here:", id="words before it"),
        pytest.param('{"a": 1} I hope', "Extra data at character 9, where it says 'I hope'", id="words after it"),
        pytest.param('{"é😀": x}', "Expecting value at character 7", id="characters are counted, not bytes"),
        pytest.param('{"a": 1', "at character 7, at its end", id="a cut one"),
        pytest.param('```json\n{"a": x}\n```', "at character 6, where it says 'x}'", id="counted within the fence"),
        pytest.param("```json\n1\n```\n```json\n2\n```", "Extra data", id="two fences"),
        pytest.param("NaN", "expected value", id="not a number"),
        pytest.param("1e999", "expected value", id="infinity"),
        pytest.param('"\\ud800"', "hex escape", id="a lone surrogate"),
        pytest.param("[" * 101 + "]" * 101, "nested more than 100 deep", id="too deep"),
        pytest.param("[" * 5_000 + "]" * 5_000, "nested too deep", id="far too deep"),
        pytest.param("1" * 5_000, "out of range", id="a number of 5,000 digits"),
        pytest.param('{"n": 1, "n": 2}', "each key once: the key 'n' is used twice", id="a key twice"),
        pytest.param('{"n": 1, "n": 1}', "'n' is used twice", id="the same value twice"),
        pytest.param('[{"a": {"n": 1, "\\u006e": 2}}]', "'n' is used twice", id="a nested key twice, once escaped"),
        pytest.param('```json\n{"n": 1, "n": 2}\n```', "'n' is used twice", id="a key twice in a fence"),
        pytest.param('{{"{0}": 1, "{0}": 2}}'.format("k" * 500), "is used twice", id="a long key twice"),
    ],
)
def test_text_that_is_not_only_json_gets_short_feedback(text: str, feedback: str) -> None:
    with pytest.raises(ValueError, match=r"^it is ") as caught:
        parsed_answer_json(text)
    assert feedback in str(caught.value)
    assert len(str(caught.value)) <= 150


@LAW
@given(json_values, st.sampled_from(["{}", " {} ", "```json\n{}\n```", "```\n{}\n```"]))
def test_every_serialisable_value_is_parsed(value: Any, frame: str) -> None:
    assert parsed_answer_json(frame.replace("{}", to_json(value).decode())) == value


@LAW
@given(any_text | st.text('{}[]",:0123\\u \n`'))
def test_any_text_is_a_serialisable_value_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        value = parsed_answer_json(text)
        assert from_json(to_json(value)) == value
