"""References of a step's arguments to the value of another step."""

import functools
import time
from typing import Any

import pytest

from orga.workflows.decisions.goals.plans import parsed_plan, value_outline, with_values
from orga.workflows.decisions.goals.replies import UnusableReply
from orga.workflows.types.goals.pursuit import MAX_ARGUMENTS_BYTES
from orga.workflows.types.goals.requests import referred_steps
from orga.workflows.types.json_text import MAX_DEPTH
from tests.support.values.goals import a_plan_step

DEEP: list[Any] = functools.reduce(lambda inner, _: [inner], range(MAX_DEPTH), [])
VALUE = {
    "refers": [{"$step": "b"}],
    "deep": DEEP,
    "id": "A-7",
    "items": [{"name": "lamp"}, {"name": None}],
    "long": "x" * MAX_ARGUMENTS_BYTES,
}
SKILLS = {"get": "", "pay": ""}


def refers(*path: Any, step: str = "a") -> dict[str, Any]:
    return {"$step": step, "path": list(path)}


@pytest.mark.parametrize(
    ("arguments", "filled"),
    [
        pytest.param({"n": refers("id")}, {"n": "A-7"}, id="a field"),
        pytest.param({"n": {"$step": "a", "path": "id"}}, {"n": "A-7"}, id="a path of one key"),
        pytest.param({"n": refers("items", 0, "name")}, {"n": "lamp"}, id="an item of a list"),
        pytest.param({"n": refers("items", "0")}, {"n": {"name": "lamp"}}, id="an index as text"),
        pytest.param({"n": [{"deep": refers("id")}], "m": 1}, {"n": [{"deep": "A-7"}], "m": 1}, id="inside of others"),
        pytest.param({"n": refers("id", step="b")}, {"n": refers("id", step="b")}, id="of a step that is not done"),
        pytest.param({"n": refers("no")}, None, id="a field that does not exist"),
        pytest.param({"n": refers("items", 7)}, None, id="an item that does not exist"),
        pytest.param({"n": refers("id", "x")}, None, id="a field of a text"),
        pytest.param({"n": refers("items", 1, "name")}, None, id="null"),
        pytest.param({"n": refers("items", {})}, None, id="a path of no keys"),
        pytest.param({"n": refers("items", float("inf"))}, None, id="an endless index"),
        pytest.param({"n": refers("refers")}, None, id="a value that refers to another step"),
        pytest.param({"n": refers("deep")}, None, id="deeper than a plan may be"),
        pytest.param({"n": refers("long")}, None, id="more than a plan holds"),
    ],
)
def test_a_reference_becomes_the_part_of_the_value(arguments: Any, filled: Any) -> None:
    step = a_plan_step("s", "open").with_fields(arguments=arguments)
    assert with_values(step, {"a": VALUE}).arguments == filled


def test_a_step_depends_on_those_that_it_refers_to() -> None:
    listed: list[dict[str, Any]] = [
        {"id": "a", "goal": "g", "skill": "get", "arguments": {}},
        {"id": "b", "goal": "g", "skill": "pay", "arguments": {"n": refers("id")}},
    ]
    assert [step.depends_on for step in parsed_plan(listed, SKILLS, 8, valued=frozenset({"get"}))] == [(), ("a",)]
    with pytest.raises(UnusableReply, match="b: arguments: 'a' is no step of this plan whose skill returns a value"):
        parsed_plan(listed, SKILLS, 8)
    listed[0]["arguments"] = {"n": refers("id", step="b")}
    with pytest.raises(UnusableReply, match="circle"):
        parsed_plan(listed, SKILLS, 8, valued=frozenset(SKILLS))


def test_references_are_found_at_any_depth() -> None:
    assert list(referred_steps({"a": [{"b": refers(step="x")}], "c": refers(step="y"), "d": "$step"})) == ["x", "y"]


OUTLINES: list[tuple[Any, str]] = [
    (None, ""),
    ({"type": "object"}, ""),
    ({"properties": {"id": {}, "of": {"properties": {"n": {}}}}}, "{id, of: {n}}"),
    ({"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"properties": {"n": {}}}}}, "[{n}]"),
    ({"anyOf": [{"type": "null"}, {"properties": {"n": {}}}]}, "{n}"),
    ({"properties": {"rows": {"items": {}}}}, "{rows: […]}"),
]


@pytest.mark.parametrize(("schema", "outline"), OUTLINES)
def test_the_outline_of_a_value_names_its_fields(schema: Any, outline: str) -> None:
    assert value_outline(schema, 100) == outline


def test_the_outline_of_a_hostile_schema_takes_no_time() -> None:
    fields = {f"field_{number}": {"$ref": "#/$defs/A"} for number in range(300)}
    hostile = {"$ref": "#/$defs/A", "$defs": {"A": {"properties": fields, "anyOf": [{"$ref": "#/$defs/A"}] * 300}}}
    began = time.process_time()
    assert len(value_outline(hostile, 300)) <= 300
    endless = {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 300}}}
    assert value_outline(endless, 300) == ""
    assert time.process_time() - began < 1
