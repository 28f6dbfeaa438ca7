"""Arguments with only one possible meaning are converted before the gate. All others are kept unchanged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.agents.offered_tools import SAGA_TOOL
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.replies import MAX_VISITS, with_fitted_arguments
from orga.workflows.types.json_text import MAX_DEPTH, is_deeper
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.values.strategies import LAW, json_values

LIST = {"type": "array", "items": {"type": "integer"}}
PLACE = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}, "required": ["city"]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"place": PLACE, "again": {"$ref": "#/$defs/again"}},
    "properties": {
        "text": {"type": "string"},
        "limit": {"type": "integer", "default": 10},
        "exact": {"type": "boolean"},
        "tags": LIST,
        "place": {"$ref": "#/$defs/place"},
        "maybe": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string"}, LIST]},
        "mode": {"enum": ["a", "b"]},
        "size": {"enum": [1, 2, None]},
        "places": {"type": "array", "items": {"oneOf": [{"$ref": "#/$defs/place"}]}},
        "ratio": {"type": ["number", "null"]},
        "anything": {},
        "loop": {"$ref": "#/$defs/again"},
        "free": {"type": "object", "additionalProperties": LIST},
    },
    "required": ["text"],
}


def fitted(arguments: dict[str, Any], schema: dict[str, Any] = SCHEMA, malformed: str | None = None) -> ToolCall:
    call = ToolCall(call_id="c", name="search", arguments=arguments, malformed=malformed)
    reply = Reply.of("hm", calls=(call,))
    (found,) = with_fitted_arguments(reply, [ToolSpec(name="search", parameters=schema)]).calls
    return found


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        pytest.param({"limit": None, "tags": None, "mode": None}, {}, id="null for optional arguments"),
        pytest.param({"place": {"city": "Graz", "zip": None}}, {"place": {"city": "Graz"}}, id="null within an object"),
        pytest.param({"tags": "[1, 2]"}, {"tags": [1, 2]}, id="a list as text"),
        pytest.param({"place": '{"city": "Graz", "zip": null}'}, {"place": {"city": "Graz"}}, id="an object as text"),
        pytest.param({"maybe": '{"city": "Graz"}'}, {"maybe": {"city": "Graz"}}, id="one that may be null"),
        pytest.param({"places": '["{\\"city\\": \\"Graz\\"}"]'}, {"places": [{"city": "Graz"}]}, id="text within text"),
        pytest.param({"limit": "5", "exact": "true", "ratio": "0.5"}, {"limit": 5, "exact": True, "ratio": 0.5},
                     id="numbers and booleans as text"),
        pytest.param({"size": "2"}, {"size": 2}, id="a listed number as text"),
        pytest.param({"free": {"a": "[1]"}}, {"free": {"a": [1]}}, id="a property of any name"),
    ],
)  # fmt: skip
def test_unambiguous_arguments_are_converted(sent: dict[str, Any], meant: dict[str, Any]) -> None:
    found = fitted({"text": "t", **sent})
    assert found.arguments == {"text": "t", **meant}
    assert argument_errors(SCHEMA, found.arguments) == []


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"text": None}, id="null for a required argument"),
        pytest.param(
            {"maybe": None, "size": None, "ratio": None, "anything": None, "loop": None}, id="null where it is allowed"
        ),
        pytest.param({"text": "[1]", "either": "[1]", "anything": "[1]", "mode": "1"}, id="text where text is allowed"),
        pytest.param({"tags": '{"a": 1}', "place": "[1]"}, id="text of another kind"),
        pytest.param({"tags": "[1", "place": '{"city": 1, "city": 2}'}, id="text that is no JSON, or has a key twice"),
        pytest.param({"limit": "many", "exact": "yes", "ratio": "NaN"}, id="words"),
        pytest.param({"limit": "1.5", "exact": "1"}, id="a value of another type"),
        pytest.param({"limit": "null"}, id="null as text"),
        pytest.param({"unknown": None}, id="an unknown parameter"),
    ],
)
def test_other_arguments_are_kept_for_the_gate(sent: dict[str, Any]) -> None:
    assert fitted(sent).arguments == sent


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "properties": {}}, SCHEMA])
@pytest.mark.parametrize("malformed", ["null", "[]", ' "" ', "{}", '"null"', '"{}"'])
def test_an_empty_value_instead_of_arguments_means_no_arguments(schema: dict[str, Any], malformed: str) -> None:
    found = fitted({}, schema, malformed)
    assert (found.arguments, found.malformed) == ({}, None) if malformed != ' "" ' else ({}, malformed)


def test_arguments_as_json_text_are_parsed() -> None:
    found = fitted({}, malformed=json.dumps(json.dumps({"text": "t", "limit": None})))
    assert (found.arguments, found.malformed) == ({"text": "t"}, None)


@pytest.mark.parametrize("malformed", ["[1]", "3", '"text"', '{"text": 1, "text": 2}', "{", '"{"'])
def test_a_value_that_is_not_an_object_stays_malformed(malformed: str) -> None:
    assert fitted({}, malformed=malformed).malformed == malformed


def test_the_calls_of_a_saga_are_converted_by_their_own_tools() -> None:
    step = {"tool": "search", "kind": "read_only", "arguments": {"text": "t", "tags": "[1]"}}
    undone = {**step, "compensation": {"tool": "search", "arguments": {"text": "t", "limit": None}}}
    call = ToolCall(call_id="c", name="saga", arguments={"steps": json.dumps([undone])})
    tools = [SAGA_TOOL, ToolSpec(name="search", parameters=SCHEMA)]
    (found,) = with_fitted_arguments(Reply.of(calls=(call,)), tools).calls
    (given_step,) = found.arguments["steps"]
    assert given_step["arguments"] == {"text": "t", "tags": [1]}
    assert given_step["compensation"]["arguments"] == {"text": "t"}


def test_the_rest_of_a_reply_and_unknown_tools_are_unchanged() -> None:
    call = ToolCall(call_id="c", name="other", arguments={"limit": None})
    reply = Reply.of("hm", calls=(call,), finish="tool_calls")
    assert with_fitted_arguments(reply, [ToolSpec(name="search", parameters=SCHEMA)]) == reply


schemas = st.recursive(
    st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"]).map(lambda t: {"type": t})
    | st.builds(dict[str, Any]),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda several: {"anyOf": several})
        | inner.map(lambda item: {"type": "array", "items": item})
        | st.dictionaries(st.sampled_from("abc"), inner).map(lambda known: {"type": "object", "properties": known})
    ),
    max_leaves=6,
)


@LAW
@given(st.dictionaries(st.sampled_from("abc"), schemas), st.dictionaries(st.sampled_from("abc"), json_values))
def test_valid_arguments_are_never_changed(properties: dict[str, Any], arguments: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": properties}
    if not argument_errors(schema, arguments):
        assert fitted(arguments, schema).arguments == arguments


def test_nested_text_is_not_converted_beyond_the_allowed_depth() -> None:
    loop: dict[str, Any] = {"type": "array", "items": {"$ref": "#/$defs/loop"}}
    schema = {"type": "object", "$defs": {"loop": loop}, "properties": {"a": {"$ref": "#/$defs/loop"}}}
    inner: Any = []
    for _ in range(6):
        for _ in range(MAX_DEPTH - 2):
            inner = [inner]
        inner = json.dumps(inner)
    found = fitted({"a": inner}, schema)
    assert not is_deeper(found.arguments, MAX_DEPTH)


def test_a_large_schema_has_a_bounded_cost() -> None:
    several = [{"anyOf": [{"type": "integer"}] * 100}] * (MAX_VISITS // 50)
    schema = {"type": "object", "properties": {"a": {"anyOf": several}}}
    assert fitted({"a": None}, schema).arguments == {"a": None}
