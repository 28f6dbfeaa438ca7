"""One tool that a provider refuses does not end a run. It is reshaped, or left out with a line in the log."""

import json
import logging
import re
from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.schema_shape import (
    as_arguments_root,
    plain_schema,
    portable_names,
    with_keys,
    with_names,
)
from orga.activities.adapters.models.wire_tools import WireTools
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.ports import ModelError
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.parts import ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec, object_schema
from tests.support.model.providers import (
    Network,
    a_request,
    call_block,
    chunk,
    message_events,
    provider,
    stream_response,
)

OPEN: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "object", "properties": {"a b": {}}}}
ROW: dict[str, Any] = {
    "type": "object",
    "properties": {
        "$filter": {"type": "string"},
        "filter": {"type": "string"},
        "page[size]": {"type": "integer"},
        "größe" * 20: {"type": "integer"},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row~1x"}},
        "by": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"a/b": {}}, "required": ["a/b"]}]},
        "free": {"type": "object"},
        "open": OPEN,
    },
    "required": ["$filter"],
    "dependentRequired": {"$filter": ["page[size]"]},
    "$defs": {"row/x": {"type": "object", "properties": {"@id": {}, "next": {"$ref": "#/$defs/row~1x"}}}},
    "additionalProperties": False,
}
ARGUMENTS: dict[str, Any] = {
    "$filter": "a",
    "filter": "b",
    "page[size]": 3,
    "größe" * 20: 1,
    "rows": [{"@id": 1, "next": {"@id": 2}}],
    "by": {"a/b": "c"},
    "free": {"filter_2": "stays", "page_size": "stays"},
    "open": {"x": {"a b": 1}},
}


def test_portable_names_are_valid_and_unique() -> None:
    names = portable_names(ROW)
    assert {names["$filter"], names["page[size]"], names["@id"], names["a/b"], names["a b"]} == {
        *("filter_2", "page_size", "id", "a_b", "a_b_2")
    }
    assert all(name.isascii() and len(name) <= 64 for name in names.values())
    assert len({*names.values(), "filter"}) == len(names) + 1
    assert portable_names({"properties": {"a.b-c_D1": {}}}) == {}


def test_arguments_are_mapped_back_to_the_names_of_the_tool() -> None:
    names = portable_names(ROW)
    sent = with_keys(ARGUMENTS, ROW, names)
    assert not {"$filter", "page[size]", "@id", "a/b", "a b"} & set(_keys(sent))
    assert sent["free"] == ARGUMENTS["free"]
    assert argument_errors(with_names(ROW, names), sent) == []
    assert with_keys(sent, ROW, names, back=True) == ARGUMENTS
    assert argument_errors(ROW, ARGUMENTS) == []


def test_arguments_with_the_names_of_the_tool_are_accepted() -> None:
    names = portable_names(ROW)
    assert with_keys(ARGUMENTS, ROW, names, back=True) == ARGUMENTS


def test_no_argument_is_lost_if_both_names_are_used() -> None:
    given = {"$filter": "a", "filter_2": "b"}
    assert sorted(with_keys(given, ROW, portable_names(ROW), back=True).values()) == ["a", "b"]


def _keys(value: Any) -> list[str]:
    return [piece.removesuffix('":') for piece in re.findall(r'(?<=")[^"]+":', json.dumps(value, ensure_ascii=False))]


A, B = {"type": "string"}, {"type": "integer"}


def requiring(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has all these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    ("schema", "properties", "required"),
    [
        pytest.param(
            {"type": "object", "properties": {"a": A, "b": B}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": A, "b": B},
            None,
            id="one of two is required",
        ),
        pytest.param(
            {"oneOf": [requiring(a=A, k=B), requiring(k=A)]},
            {"a": A, "k": {"anyOf": [B, A]}},
            ["k"],
            id="alternatives with a property of both",
        ),
        pytest.param(
            {"allOf": [requiring(a=A), {"$ref": "#/$defs/b"}], "$defs": {"b": requiring(b=B)}},
            {"a": A, "b": B},
            ["a", "b"],
            id="all of several",
        ),
        pytest.param({"$ref": "#/$defs/a", "$defs": {"a": requiring(a=A)}}, {"a": A}, ["a"], id="a reference"),
        pytest.param(
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {}, None, id="a reference to itself"
        ),
        pytest.param({"type": ["object", "null"], "properties": {"a": A}}, {"a": A}, None, id="an object or null"),
        pytest.param(
            {"if": {"required": ["a"]}, "then": {"properties": {"b": B}}, "properties": {"a": A}},
            {"a": A, "b": B},
            None,
            id="a condition",
        ),
        pytest.param({"not": {"required": ["a"]}, "properties": {"a": A}}, {"a": A}, None, id="a negation"),
    ],
)
def test_combined_schemas_become_one_object(
    schema: dict[str, Any], properties: dict[str, Any], required: list[str] | None
) -> None:
    root = as_arguments_root(schema)
    assert (root["type"], root["properties"], root.get("required")) == ("object", properties, required)
    assert not {"anyOf", "oneOf", "allOf", "not", "if", "$ref"} & root.keys()


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": {"a": {"anyOf": [A, B]}}}])
def test_an_accepted_schema_is_not_changed(schema: dict[str, Any]) -> None:
    assert as_arguments_root(schema) is schema


def test_a_plain_schema_is_finite_and_has_few_keywords() -> None:
    """This holds even if every property refers to the schema itself."""
    tree: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"$ref": "#"} for name in "abcdefgh"} | {"n": {"type": ["integer", "null"], "minimum": 1}},
        "required": ["n", "gone"],
        "patternProperties": {"^x": A},
    }
    shape = plain_schema(tree)
    assert (shape["required"], shape["properties"]["n"]) == (["n"], {"type": "integer"})
    assert not {"$ref", "minimum", "patternProperties", "anyOf"} & set(_keys(shape))
    assert len(json.dumps(shape)) < 100_000


def test_a_plain_schema_requires_only_what_each_alternative_requires() -> None:
    by_id = object_schema({"id": A, "note": A})
    by_name = object_schema({"name": A, "note": A})
    alternatives = [object_schema({"who": by_id}), object_schema({"who": by_name})]
    shape = plain_schema({"anyOf": alternatives})
    assert shape["required"] == ["who"]
    assert shape["properties"]["who"]["required"] == ["note"]
    listed = plain_schema(object_schema({"all": {"allOf": [{"type": "array", "items": by_id}, {"minItems": 1}]}}))
    assert listed["properties"]["all"]["items"]["required"] == ["id", "note"]


LONG = "read_" + "a_very_long_name_" * 6
TOOLS = (
    ToolSpec(name="rows", description="Rows.", parameters=ROW),
    ToolSpec(name=LONG, parameters=OPEN),
    ToolSpec(name=f"{LONG}too", parameters=OPEN),
    ToolSpec(name="größe.von"),
    ToolSpec(name="3d_print"),
    ToolSpec(name="now"),
)


def test_calls_are_sent_and_read_back_under_their_own_names() -> None:
    tools = WireTools(TOOLS, Dialect())
    calls = (ToolCall(call_id="1", name="rows", arguments=ARGUMENTS), ToolCall(call_id="2", name=f"{LONG}too"))
    sent = tools.to_wire(a_request(tools=TOOLS, messages=(Message.of("assistant", "hm", calls),)))
    names = [tool.name for tool in sent.tools]
    assert names[0] == "rows"
    assert names[-1] == "now"
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", name) for name in names)
    made = sent.messages[0].calls
    assert [call.name for call in made] == [names[0], names[2]]
    assert "$filter" not in made[0].arguments
    assert tools.from_wire(Reply.of("hm", made)).calls == calls


def test_a_request_that_needs_no_change_is_sent_unchanged() -> None:
    request = a_request(
        tools=TOOLS[-1:], messages=(Message.of("assistant", calls=(ToolCall(call_id="1", name="now"),)),)
    )
    tools = WireTools(request.tools, Dialect())
    reply = Reply.of("hi")
    assert tools.to_wire(request) is request
    assert tools.from_wire(reply) is reply


def refused(message: str) -> http.Response:
    return http.Response(400, json={"error": {"type": "invalid_request_error", "message": message}})


OFFERED = tuple(
    ToolSpec(name=name, parameters={"properties": {"x": {"minimum": 1}}}) for name in ("first", "odd", "last")
)


@pytest.mark.parametrize("kind", ["anthropic", "openai-compatible"])
@pytest.mark.parametrize(
    "refusal",
    [
        "tools.1.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
        "Invalid schema for function 'odd': In context=('properties', 'x'), 'minimum' is not permitted.",
        "Invalid 'tools[1].function.parameters': schema is too complex",
        "* GenerateContentRequest.tools[0].function_declarations[1].parameters.properties[x].type: must be specified",
        '[{"loc": ["body", "tools", 1, "function", "parameters"], "msg": "bad"}]',
        "the tool odd cannot be used",
    ],
)
async def test_a_refused_tool_is_simplified_and_then_left_out(
    kind: str, refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    def answer() -> http.Response:
        return (
            stream_response(*message_events()) if kind == "anthropic" else stream_response(chunk("stop", content="hi"))
        )

    caplog.set_level(logging.WARNING)
    network = Network([refused(refusal), refused(refusal), answer(), answer()])
    model = provider(kind, network)
    for _ in range(2):
        await model.complete(a_request(tools=OFFERED), lambda text: None)
    await model.close()
    offered = [[tool.get("name") or tool["function"]["name"] for tool in network.body(i)["tools"]] for i in range(4)]
    assert offered == [["first", "odd", "last"]] * 2 + [["first", "last"]] * 2
    assert ["minimum" in json.dumps(network.body(i)["tools"][1]) for i in range(2)] == [True, False]
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "the tool odd is left out" in line and "answered 400" in line] == lines


async def test_refused_tools_do_not_hinder_what_a_later_refusal_teaches() -> None:
    names = [f"odd{n}" for n in range(4)]
    tools = tuple(ToolSpec(name=name, parameters={"properties": {"x": {"minimum": 1}}}) for name in names)
    refusals = [refused(f"the tool {name} cannot be used") for name in names for _ in range(2)]
    temperature = refused("Unsupported value: 'temperature' does not support 0.3")
    network = Network([*refusals, temperature, stream_response(chunk("stop", content="hi"))])
    model = provider("openai", network)
    request = a_request(tools=tools, settings=ModelSettings(temperature=0.3))
    assert (await model.complete(request, lambda text: None)).text == "hi"
    await model.close()
    assert "temperature" not in network.body()


async def test_an_accepted_plain_schema_is_remembered_for_that_definition_only() -> None:
    refusal = refused("Invalid schema for function 'odd'")
    network = Network([refusal, *(stream_response(chunk("stop", content="hi")) for _ in range(3))])
    model = provider("openai-compatible", network)
    other = (ToolSpec(name="odd", parameters={"properties": {"y": {"minimum": 1}}}),)
    for tools in (OFFERED, OFFERED, other):
        await model.complete(a_request(tools=tools), lambda text: None)
    await model.close()
    assert [json.dumps(network.body(i)["tools"]).count("minimum") for i in range(4)] == [3, 2, 2, 1]


async def test_a_keyword_refused_in_every_tool_costs_few_requests() -> None:
    def server(request: http.Request) -> http.Response:
        asked.append(json.loads(request.content))
        bad = [i for i, tool in enumerate(asked[-1]["tools"]) if "minimum" in json.dumps(tool)]
        return refused(f"tools.{bad[0]}.input_schema: minimum") if bad else stream_response(*message_events())

    asked: list[dict[str, Any]] = []
    model = provider("anthropic", server)
    tools = tuple(ToolSpec(name=f"t{n}", parameters={"properties": {"x": {"minimum": n}}}) for n in range(40))
    await model.complete(a_request(tools=tools), lambda text: None)
    await model.close()
    assert len(asked) <= 4
    assert len(asked[-1]["tools"]) == 40


@pytest.mark.parametrize(
    ("refusal", "kept"),
    [
        (
            "Invalid 'tools': array too long. Expected an array with maximum length 2, but got an array with length 3.",
            2,
        ),
        ("Too many tools: at most 1 is allowed", 1),
    ],
)
async def test_tools_above_the_limit_of_a_model_are_left_out(
    refusal: str, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network([refused(refusal), stream_response(chunk("stop", content="hi"))])
    model = provider("openai", network)
    await model.complete(a_request(tools=OFFERED), lambda text: None)
    await model.close()
    assert len(network.body()["tools"]) == kept
    assert f"{3 - kept} tools are left out" in caplog.text


@pytest.mark.parametrize("refusal", ["tools: this model has none", "messages.3: first things last"])
async def test_a_refusal_that_names_no_tool_fails_at_once(refusal: str) -> None:
    network = Network([refused(refusal)])
    model = provider("openai-compatible", network)
    with pytest.raises(ModelError):
        await model.complete(a_request(tools=OFFERED), lambda text: None)
    await model.close()
    assert len(network.requests) == 1


@pytest.mark.parametrize("kind", ["anthropic", "openai-compatible"])
async def test_a_call_is_validated_with_the_tool_s_own_schema(kind: str) -> None:
    """The model sees other names. Its call gets the names of the tool and is checked in full."""
    arguments = json.dumps({"filter_2": "a", "page_size": "many"})
    made = {"index": 0, "id": "c", "function": {"name": "rows", "arguments": arguments}}
    stream = (
        stream_response(*message_events(call_block("c", "rows", arguments), stop="tool_use"))
        if kind == "anthropic"
        else stream_response(chunk("tool_calls", tool_calls=[made]))
    )
    model = provider(kind, Network([stream]))
    reply = await model.complete(a_request(tools=TOOLS), lambda text: None)
    await model.close()
    assert reply.calls[0].arguments == {"$filter": "a", "page[size]": "many"}
    (error,) = argument_errors(ROW | {"dependentRequired": {}}, reply.calls[0].arguments)
    assert "page[size]" in error


NO_SCHEMAS: list[dict[str, Any]] = [
    {"required": [1, {}], "properties": {"$a": None}},
    {"properties": [], "anyOf": {"a": 1}},
    {"properties": {"$a": {"enum": 3, "type": [1, "null"]}, "b": {"type": None, "items": 1}}, "oneOf": [1]},
    {"dependentRequired": {"$a": 1}, "dependentSchemas": 2, "$defs": [], "$ref": 4, "properties": {"$a": True}},
    {"$ref": "#/$defs/a/b/0", "allOf": "x", "type": {}},
]


@pytest.mark.parametrize("schema", NO_SCHEMAS)
def test_an_invalid_schema_is_still_sent(schema: dict[str, Any]) -> None:
    tool = ToolSpec(name="odd", parameters=schema)
    tools = WireTools((tool,), Dialect())
    call = ToolCall(call_id="1", name="odd", arguments={"$a": [{"b": 1}], "b": {"$a": 2}})
    sent = tools.to_wire(a_request(tools=(tool,), messages=(Message.of("assistant", calls=(call,)),)))
    assert tools.from_wire(Reply.of("", sent.messages[0].calls)).calls == (call,)
    assert plain_schema(schema)["type"] == "object"
