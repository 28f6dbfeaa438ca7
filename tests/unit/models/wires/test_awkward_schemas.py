"""A tool with an awkward schema is accepted by each provider's rules, and its arguments keep their names both ways."""

import json
from typing import Any

import jsonschema
import pytest
from jsonschema import Draft202012Validator

from orga.activities.adapters import http
from orga.workflows.types.messages import Message
from orga.workflows.types.parts import ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import (
    a_request,
    call_block,
    call_item,
    chunk,
    message_events,
    provider,
    response_events,
    stream_response,
)
from tests.support.model.tool_rules import anthropic_refusal, gemini_refusal, openai_refusal

TEXT: dict[str, Any] = {"type": "string"}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def closed(**properties: Any) -> dict[str, Any]:
    """Return a schema that OpenAI's strict mode accepts."""
    return an_object(**properties) | {"required": list(properties), "additionalProperties": False}


def nested(levels: int) -> dict[str, Any]:
    return an_object(**{"in side": nested(levels - 1) if levels else TEXT})


def nested_value(levels: int) -> dict[str, Any]:
    return {"in side": nested_value(levels - 1) if levels else "x"}


NODE = an_object(**{"@id": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}})
VALUES = [f"value {n}" for n in range(1_500)]

AWKWARD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no schema": ({}, {"a": 1}),
    "an object of anything": ({"type": "object"}, {"a": 1}),
    "illegal names": (
        an_object(**{"$filter": TEXT, "page[size]": {"type": "integer"}}),
        {"$filter": "a", "page[size]": 3},
    ),
    "illegal names in arrays": (
        an_object(
            rows={
                "type": "array",
                "items": an_object(**{"a/b": {"type": "array", "items": an_object(**{"c d": TEXT})}}),
            }
        ),
        {"rows": [{"a/b": [{"c d": "x"}, {"c d": "y"}]}, {}]},
    ),
    "names that become equal": (
        an_object(**{"a b": TEXT, "a_b": TEXT, "a[b]": TEXT, "": TEXT, "é" * 70: TEXT}),
        {"a b": "1", "a_b": "2", "a[b]": "3", "": "4", "é" * 70: "5"},
    ),
    "alternatives at the top": ({"anyOf": [an_object(**{"@a": TEXT}), an_object(b=TEXT)]}, {"@a": "x", "b": "y"}),
    "one of two at the top": ({"oneOf": [closed(a=TEXT, k=TEXT), closed(k={"type": "integer"})]}, {"k": 1}),
    "all of several at the top": (
        {"allOf": [closed(a=TEXT), {"$ref": "#/$defs/b"}], "$defs": {"b": an_object(**{"b.c": TEXT})}},
        {"a": "x", "b.c": "y"},
    ),
    "a condition at the top": (
        an_object(a=TEXT)
        | {"if": {"required": ["a"]}, "then": an_object(**{"$b": TEXT}), "else": {}, "not": {"required": ["z"]}},
        {"a": "x", "$b": "y"},
    ),
    "a tree": (
        {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
        {"@id": "1", "children": [{"@id": "2", "children": []}]},
    ),
    "a schema in itself": (an_object(**{"next one": {"$ref": "#"}, "v": TEXT}), {"next one": {"next one": {"v": "x"}}}),
    "an array without items": (
        an_object(tags={"type": "array"}, deep=an_object(t={"type": ["array", "null"]})),
        {"tags": ["a"], "deep": {"t": []}},
    ),
    "a tuple": (
        an_object(at={"type": "array", "prefixItems": [TEXT, an_object(**{"x y": TEXT})]}),
        {"at": ["a", {"x y": "b"}]},
    ),
    "an older draft": (
        an_object(n={"type": "number", "exclusiveMinimum": True, "minimum": 0}, p={"items": [TEXT], "type": "array"}),
        {"n": 1, "p": ["a"]},
    ),
    "a required property, as in draft 3": (an_object(a=TEXT | {"required": True}), {"a": "x"}),
    "constants and formats": (
        an_object(k={"const": "a"}, u=TEXT | {"format": "uri"}, n={"type": "integer", "format": "uint8"}),
        {"k": "a", "u": "https://a.test", "n": 1},
    ),
    "nullable types": (
        an_object(a={"type": ["string", "null"]}, b={"anyOf": [TEXT, {"type": "null"}]}),
        {"a": None, "b": None},
    ),
    "anything as a property": (
        an_object(a={}, b=True, c={"description": "a value"}),
        {"a": [1], "b": {"x": 1}, "c": "d"},
    ),
    "a huge enum": (an_object(a=TEXT | {"enum": VALUES}), {"a": VALUES[-1]}),
    "an enum of numbers": (an_object(a={"enum": [1, 2, "x", None, ""]}), {"a": 2}),
    "free keys": (
        an_object(
            m={
                "type": "object",
                "additionalProperties": an_object(**{"@v": TEXT}),
                "propertyNames": {"pattern": "^x"},
                "patternProperties": {"^y": TEXT},
            }
        ),
        {"m": {"x y": {"@v": "1"}}},
    ),
    "an unknown type": (an_object(a={"type": "any"}, b={"type": "file"}), {"a": 1, "b": "x"}),
    "a reference to elsewhere": (
        an_object(a={"$ref": "https://a.test/schema.json"}, b={"$ref": "#/definitions/gone"}),
        {"a": 1, "b": 2},
    ),
    "a property that is required and missing": (
        an_object(a=TEXT)
        | {"required": ["a", "gone"], "$schema": "http://json-schema.org/draft-07/schema#", "$id": "x"},
        {"a": "b", "gone": 1},
    ),
    "twelve levels": (nested(12), nested_value(12)),
    "a strict schema": (closed(a=TEXT, b=closed(c={"type": ["string", "null"]})), {"a": "x", "b": {"c": None}}),
    "a strict schema with a huge enum": (closed(a=TEXT | {"enum": VALUES}), {"a": VALUES[0]}),
}
OTHER_DRAFTS = {"an older draft", "a required property, as in draft 3"}
"""OpenAI accepts these schemas, and nothing can be checked against them."""

NAMES = ("look", "3d.look up", "a_name_of_a_tool_that_is_far_longer_than_the_sixty_four_characters_of_providers")

KINDS = {"chat": "openai", "responses": "responses", "messages": "anthropic", "gemini": "openai-compatible"}
"""The provider that is asked, by the rules of the server."""


def definition(tool: dict[str, Any]) -> tuple[str, dict[str, Any], bool]:
    function = tool.get("function", tool)
    return function["name"], function.get("input_schema", function.get("parameters")), function.get("strict", False)


def refusal_of(rules: str, tools: list[dict[str, Any]]) -> str:
    for index, (name, schema, strict) in enumerate(map(definition, tools)):
        match rules:
            case "messages":
                refusal = anthropic_refusal(index, name, schema)
            case "gemini":
                refusal = gemini_refusal(index, name, schema)
            case _:
                refusal = openai_refusal(index, name, schema, strict)
        if refusal:
            return refusal
    return ""


def made_call(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of the only call in a request."""
    for each in body.get("input", ()):
        if each.get("type") == "function_call":
            return each["name"], json.loads(each["arguments"])
    for message in body.get("messages", ()):
        for call in message.get("tool_calls", ()):
            return call["function"]["name"], json.loads(call["function"]["arguments"])
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                return block["name"], block["input"]
    raise AssertionError("no call was sent")


def same_call(rules: str, body: dict[str, Any]) -> http.Response:
    name, arguments = made_call(body)
    text = json.dumps(arguments)
    if rules == "messages":
        return stream_response(*message_events(call_block("c2", name, text), stop="tool_use"))
    if rules == "responses":
        return stream_response(*response_events(call_item("c2", name, text)))
    function = {"name": name, "arguments": text}
    return stream_response(chunk("tool_calls", tool_calls=[{"index": 0, "id": "c2", "function": function}]), "[DONE]")


@pytest.mark.parametrize("rules", list(KINDS))
@pytest.mark.parametrize("case", list(AWKWARD))
async def test_an_awkward_schema_is_accepted(case: str, rules: str) -> None:
    schema, arguments = AWKWARD[case]
    for name in NAMES:
        bodies: list[dict[str, Any]] = []

        def server(request: http.Request, bodies: list[dict[str, Any]] = bodies) -> http.Response:
            bodies.append(json.loads(request.content))
            if refusal := refusal_of(rules, bodies[-1]["tools"]):
                error = {"type": "invalid_request_error", "message": refusal}
                return http.Response(400, json={"type": "error", "error": error})
            return same_call(rules, bodies[-1])

        model = provider(KINDS[rules], server)
        call = ToolCall(call_id="c1", name=name, arguments=arguments)
        messages = (
            Message.of("user", "go"),
            Message.of("assistant", calls=(call,)),
            Message.of_result("ok", "c1", name),
        )
        tools = (ToolSpec(name="now"), ToolSpec(name=name, description="Looks.", parameters=schema))
        for _ in range(2):
            reply = await model.complete(a_request(tools=tools, messages=messages), lambda text: None)
            assert [(each.name, each.arguments) for each in reply.calls] == [(name, arguments)]
        await model.close()
        offered = [definition(tool) for tool in bodies[-1]["tools"]]
        assert len(offered) == 2
        assert len(bodies) <= 4
        if rules != "gemini" and len(bodies) == 2 and case not in OTHER_DRAFTS:
            sent_name, sent_arguments = made_call(bodies[-1])
            assert (sent_name, offered[1][2]) == (offered[1][0], rules != "messages" and case == "a strict schema")
            jsonschema.validate(sent_arguments, offered[1][1], Draft202012Validator)


@pytest.mark.parametrize("kind", ["openai", "openrouter", "responses"])
async def test_a_server_without_strict_mode_is_asked_without_it(kind: str) -> None:
    bodies: list[dict[str, Any]] = []

    def server(request: http.Request) -> http.Response:
        bodies.append(json.loads(request.content))
        if definition(bodies[-1]["tools"][0])[2]:
            text = "body.tools.0.function.strict: Extra inputs are not permitted"
            return http.Response(422, json={"error": {"message": text}})
        if kind == "responses":
            return stream_response(*response_events())
        return stream_response(chunk("stop", content="hi"), "[DONE]")

    model = provider(kind, server)
    tools = (ToolSpec(name="look", parameters=closed(a=TEXT)),)
    for _ in range(2):
        await model.complete(a_request(model="openai/m", tools=tools), lambda text: None)
    await model.close()
    assert [definition(body["tools"][0])[2] for body in bodies] == [True, False, False]
