"""Tool arguments as models write them, and unique call ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.models.reply import OpenCall, finished_calls, tool_call
from orga.workflows.types.messages import Message, Reply, ToolCall

EARLIER = (Message.of("assistant", calls=(ToolCall(call_id="c1", name="f"),)),)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        pytest.param("", {}, id="nothing means no arguments"),
        pytest.param("  ", {}, id="blank"),
        pytest.param("{}", {}, id="an empty object"),
        pytest.param('{"a": [1, null, "é"]}', {"a": [1, None, "é"]}, id="an object"),
        pytest.param('{"a": "\\u0000"}', {"a": "\ufffd"}, id="NUL is replaced"),
        pytest.param(
            '{"a": {"a": 1}, "A": [{"a": 1}]}', {"a": {"a": 1}, "A": [{"a": 1}]}, id="the same key in several objects"
        ),
        pytest.param('{}{"a": 1}', {"a": 1}, id="an empty object before the real one"),
        pytest.param('null {"a": 1}', {"a": 1}, id="null before the real object"),
        pytest.param("{} [] {}", {}, id="placeholders alone"),
        pytest.param('{"a": 1}{"a":1}', {"a": 1}, id="the whole object again"),
        pytest.param('{"a": 1}\n{}', {"a": 1}, id="a placeholder after the object"),
    ],
)
def test_valid_arguments_are_parsed(text: str, arguments: dict[str, object]) -> None:
    call = tool_call("c", "f", text)
    assert (call.arguments, call.malformed) == (arguments, None)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"a": ', id="cut"),
        pytest.param("[1]", id="a list"),
        pytest.param("null", id="null"),
        pytest.param('{"a": 1}{"a": 2}', id="two objects"),
        pytest.param('{"a": 1}{"a": true}', id="two objects that are equal in Python"),
        pytest.param('{}{"a": 1, "a": 2}', id="a key twice, after a placeholder"),
        pytest.param('{}{"a": ', id="cut after a placeholder"),
        pytest.param("{}" * 50_000 + '{"a": 1}', id="placeholders without end"),
        pytest.param('{"a": NaN}', id="not a number"),
        pytest.param('{"a": 1e999}', id="a number that reads as infinity"),
        pytest.param('{"a": ' * 300 + "1" + "}" * 300, id="nested without end"),
        pytest.param('{"a": "\\ud800"}', id="a lone surrogate"),
        pytest.param("search(q='a')", id="code"),
        pytest.param('{"a": 1, "a": 2}', id="a key twice"),
        pytest.param('{"a": 1, "a": 1}', id="a key twice, with one value"),
        pytest.param('{"a": 1, "\\u0061": 2}', id="a key twice, in other letters"),
        pytest.param('{"decision": "deny", "fields": {"amount": 9, "amount": 90000}}', id="a key twice, further in"),
        pytest.param('{"a": [{"b": 1}, {"b": 1, "c": 0, "b": 2}]}', id="a key twice, in a list"),
        pytest.param('{"a": {"a": {"": 1, "": 2}}}', id="the empty key twice"),
    ],
)
def test_invalid_arguments_are_kept_as_malformed_text(text: str) -> None:
    call = tool_call("c", "f", text)
    assert (call.arguments, call.malformed) == ({}, text[:10_000])


def test_names_and_malformed_text_are_bounded() -> None:
    call = tool_call("c", "f" * 1000, "x" * 50_000)
    assert (len(call.name), len(call.malformed or "")) == (200, 10_000)


@pytest.mark.parametrize(
    ("given_ids", "expected"),
    [
        pytest.param(["a", "b"], ["a", "b"], id="good ids are kept"),
        pytest.param(["", ""], ["call_1", "call_2"], id="missing"),
        pytest.param(["a", "a", "a"], ["a", "call_1", "call_2"], id="the first of several equal ids is kept"),
        pytest.param(["c1"], ["call_1"], id="used in the conversation"),
        pytest.param(["", "call_1"], ["call_2", "call_1"], id="a generated id never repeats an existing one"),
        pytest.param(["x" * 201], ["call_1"], id="too long"),
    ],
)
def test_missing_and_repeated_ids_are_replaced(given_ids: list[str], expected: list[str]) -> None:
    calls = finished_calls([OpenCall(call_id=call_id, name="f") for call_id in given_ids], EARLIER)
    assert [call.call_id for call in calls] == expected


@given(st.lists(st.tuples(st.text(st.characters(), max_size=5), st.text(st.characters()), st.text(st.characters()))))
def test_any_calls_can_be_serialised_with_unique_ids(raw: list[tuple[str, str, str]]) -> None:
    calls = finished_calls([OpenCall(call_id=i, name=n, arguments=[a]) for i, n, a in raw], EARLIER)
    ids = [call.call_id for call in calls]
    assert len({*ids, "c1"}) == len(ids) + 1
    assert Reply.model_validate_json(Reply.of(calls=calls).model_dump_json()).calls == calls
