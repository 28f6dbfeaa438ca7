"""The parts of JSON Schema that a provider accepts, and schemas adapted to them."""

import json
from typing import Any

import pytest

from orga.activities.adapters.models.schema_shape import as_wrapped_root, fits_as_root, is_strict, with_moved_references
from orga.activities.adapters.schemas.arguments import argument_errors

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where"},
        "tags": {"type": "array", "items": {"type": "integer", "enum": [1]}},
    },
    "required": ["tags", "city"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}, {"$ref": "#/$defs/n"}],
    "$defs": {"n": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(CLOSED, True, id="an object"),
        pytest.param({"type": "array"}, False, id="a list"),
        pytest.param({"properties": {}}, False, id="no type"),
        pytest.param({"type": ["object", "null"]}, False, id="two types"),
        pytest.param({"type": "object", "anyOf": [CLOSED]}, False, id="an object of several kinds"),
        pytest.param({"type": "object", "$ref": "#/$defs/x", "$defs": {"x": {}}}, False, id="a reference"),
    ],
)
def test_only_a_plain_object_can_be_the_root(schema: dict[str, Any], expected: bool) -> None:
    assert fits_as_root(schema) is expected


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        pytest.param({"type": "array", "items": {"type": "integer"}}, [1], ["x"], id="a list"),
        pytest.param(TREE, ["a", ["b", 3]], ["a", [1.5]], id="a schema that refers to itself and to its parts"),
        pytest.param({"enum": [{"$ref": "#"}]}, {"$ref": "#"}, {"$ref": "#/properties/x"}, id="data like a reference"),
        pytest.param({"properties": {"$ref": {"type": "integer"}}}, {"$ref": 1}, {"$ref": "x"}, id="a property $ref"),
    ],
)
def test_a_schema_wrapped_as_a_property_has_the_same_meaning(schema: dict[str, Any], good: Any, bad: Any) -> None:
    root = as_wrapped_root(schema, "value")
    assert fits_as_root(root)
    assert (argument_errors(schema, good), argument_errors(root, {"value": good})) == ([], [])
    assert argument_errors(schema, bad)
    assert argument_errors(root, {"value": bad})


def test_a_valid_root_is_unchanged() -> None:
    assert as_wrapped_root(CLOSED, "value") is CLOSED


def test_moving_references_does_not_change_the_original_schema() -> None:
    before = json.dumps(TREE)
    assert with_moved_references(TREE, "#/a")["anyOf"][1]["items"] == {"$ref": "#/a"}
    assert json.dumps(TREE) == before


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, True, id="closed, all required"),
        pytest.param({"additionalProperties": True}, False, id="open"),
        pytest.param({"required": ["city"]}, False, id="an optional property"),
        pytest.param(
            {"properties": CLOSED["properties"] | {"city": {"type": "object"}}}, False, id="a nested open object"
        ),
        pytest.param(
            {"properties": CLOSED["properties"] | {"city": {"type": "string", "minLength": 1}}}, False, id="a keyword"
        ),
        pytest.param({"$defs": {"x": {"type": "object", "properties": {}}}}, False, id="an open definition"),
        pytest.param({"$defs": {"x": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}}, True, id="a closed definition"),
        pytest.param({"patternProperties": {}}, False, id="a keyword at the top"),
        pytest.param({"properties": CLOSED["properties"] | {"tags": {"enum": [1]}}}, False, id="a part without a type"),
    ],
)
def test_strict_mode(change: dict[str, Any], expected: bool) -> None:
    assert is_strict(CLOSED | change) is expected
