"""Schemas for the two models without a provider: the offline reader and the small local model."""

from typing import Any

import pytest

from orga.activities.adapters.agents.agents import can_fill_schema, filled_schema
from orga.activities.adapters.offline.local_model import action_instructions, action_schema, answer_data, bounded_schema
from orga.activities.adapters.offline.reader import ExtractiveProvider
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.ports import ModelRequest
from orga.workflows.types.json_text import parsed_answer_json
from orga.workflows.types.messages import Message
from orga.workflows.types.tool_calls.tools import ToolSpec

ONE: dict[str, Any] = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 20}}}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param({"type": "string"}, True, id="a string"),
        pytest.param(ONE, True, id="an object of one string"),
        pytest.param(ONE | {"required": ["answer"], "additionalProperties": False}, True, id="required and closed"),
        pytest.param({}, False, id="anything"),
        pytest.param({"type": "string", "minLength": 3}, False, id="a string with a minimum length"),
        pytest.param({"type": "string", "enum": ["yes"]}, False, id="a choice"),
        pytest.param(ONE | {"required": ["answer", "sources"]}, False, id="something else is required"),
        pytest.param(ONE | {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, False, id="two strings"),
        pytest.param({"type": "object", "properties": {"n": {"type": "integer"}}}, False, id="a number"),
        pytest.param({"type": "object"}, False, id="an object of anything"),
    ],
)
def test_the_reader_can_fill_only_simple_schemas(schema: dict[str, Any], expected: bool) -> None:
    assert can_fill_schema(schema) is expected
    if expected:
        assert argument_errors(schema, parsed_answer_json(filled_schema(schema, 'quoted "text" é\n' * 9))) == []


@pytest.mark.parametrize("limit", [1, 4096])
async def test_the_reader_follows_the_schema_even_with_little_output(limit: int) -> None:
    task = Message.of("user", "How are retries configured?")
    request = ModelRequest(model="extractive", messages=(task,), output_schema=ONE, max_output_tokens=limit)
    pieces: list[str] = []
    reply = await ExtractiveProvider().complete(request, pieces.append)
    assert (reply.finish, reply.text) == ("stop", "".join(pieces))
    assert argument_errors(ONE, parsed_answer_json(reply.text)) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param({"type": "string"}, {"type": "string", "maxLength": 200}, id="a string"),
        pytest.param(
            {"type": "string", "minLength": 300}, {"type": "string", "minLength": 300, "maxLength": 300}, id="long"
        ),
        pytest.param({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a"]}, id="a choice"),
        pytest.param({"type": "string", "maxLength": 5_000}, {"type": "string", "maxLength": 5_000}, id="a limit"),
        pytest.param(
            {"type": "array", "items": {"type": "string"}},
            {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 10},
            id="a list",
        ),
        pytest.param({"const": {"type": "string"}}, {"const": {"type": "string"}}, id="data"),
        pytest.param(
            {"properties": {"type": {"type": "integer"}}}, {"properties": {"type": {"type": "integer"}}}, id="a name"
        ),
    ],
)
def test_all_output_of_the_small_model_is_bounded(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert bounded_schema(schema) == expected


def test_the_small_models_answer_contains_data_and_references_still_work() -> None:
    schema = action_schema((ToolSpec(name="now"),), "auto", 100, TREE)
    assert schema is not None
    good: dict[str, Any] = {"action": "answer", "data": {"name": "a", "kids": [{"name": "b", "kids": []}]}}
    assert argument_errors(schema, good) == []
    assert argument_errors(schema, {"action": "answer", "data": {"name": "a", "kids": [{"name": 1}]}})
    assert argument_errors(schema, {"action": "answer", "text": "a"})
    assert 'where DATA fits {"type":"object"' in action_instructions((ToolSpec(name="now"),), TREE)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param('{"action": "answer", "data": {"n": 1}}', '{"n":1}', id="data"),
        pytest.param('{"action": "answer", "data": null}', "null", id="null"),
        pytest.param('{"action": "answer", "text": "a"}', "", id="text"),
        pytest.param('{"action": "call_tool", "tool": "now", "data": 1}', "", id="a call"),
    ],
)
def test_the_data_of_an_answer_is_extracted(raw: str, expected: str) -> None:
    assert answer_data(raw) == expected
