"""A final answer with a schema: the request to each provider, and how its answer is read."""

from typing import Any

import pytest

from orga.activities.adapters import http
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import (
    Network,
    a_request,
    call_block,
    chunk,
    complete_request,
    message_events,
    provider,
    stream_response,
    text_block,
)
from tests.support.model.sdk_types import assert_anthropic_takes, assert_openai_takes

SEARCH = ToolSpec(name="search", parameters={"type": "object", "properties": {"q": {"type": "string"}}})
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"city": {"type": "string"}}}
CITIES = {"type": "array", "items": {"$ref": "#/$defs/city"}, "$defs": {"city": CITY}}
VALUE = {"type": "object", "properties": {"value": {"type": "integer"}}}
ANTHROPIC = "anthropic"
DONE = "[DONE]"


def body_of(kind: str, name: str, arguments: str) -> http.Response:
    """Return a streamed reply that calls one tool."""
    if kind == ANTHROPIC:
        return stream_response(*message_events(call_block("t1", name, arguments), stop="tool_use"))
    call = {"index": 0, "id": "t1", "function": {"name": name, "arguments": arguments}}
    return stream_response(chunk(tool_calls=[call]), chunk("tool_calls"), DONE)


def response(kind: str, text: str) -> http.Response:
    if kind == ANTHROPIC:
        return stream_response(*message_events(text_block(text)))
    return stream_response(chunk(content=text), chunk("stop"), DONE)


async def sent(kind: str, **fields: Any) -> dict[str, Any]:
    asked = {"output_schema": CITY, **fields}
    _, _, network = await complete_request(kind, response(kind, "{}"), request=a_request(**asked))
    (assert_anthropic_takes if kind == ANTHROPIC else assert_openai_takes)(network.body())
    return network.body()


def names(body: dict[str, Any]) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in body.get("tools", ())]


def is_schema_in_prompt(body: dict[str, Any]) -> bool:
    return any("fits this JSON Schema" in str(m["content"]) for m in body["messages"] if m["role"] == "system")


@pytest.mark.parametrize(
    ("kind", "fields", "strict", "is_told"),
    [
        pytest.param("openai", {}, True, False, id="OpenAI, a closed schema"),
        pytest.param("openai", {"tools": (SEARCH,)}, True, False, id="OpenAI, with tools"),
        pytest.param("openai", {"output_schema": OPEN}, False, False, id="OpenAI, an open schema"),
        pytest.param("openrouter", {"model": "openai/gpt-5", "tools": (SEARCH,)}, True, False, id="OpenAI, routed"),
        pytest.param("openrouter", {"model": "meta/llama"}, True, True, id="another, routed"),
        pytest.param("ollama", {}, True, True, id="Ollama"),
        pytest.param("openai-compatible", {}, True, True, id="a server like it"),
    ],
)
async def test_an_enforcing_provider_gets_the_schema(
    kind: str, fields: dict[str, Any], strict: bool, is_told: bool
) -> None:
    body = await sent(kind, **fields)
    schema = fields.get("output_schema", CITY)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "final_answer", "schema": schema, "strict": strict},
    }
    assert (is_schema_in_prompt(body), "final_answer" in names(body)) == (is_told, False)
    assert body.get("tool_choice", "auto") == "auto"


@pytest.mark.parametrize("tools", [(), (SEARCH,)], ids=["alone", "with tools"])
async def test_anthropic_gets_a_closed_schema_in_its_own_field(tools: tuple[ToolSpec, ...]) -> None:
    body = await sent(ANTHROPIC, tools=tools)
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": CITY}}
    assert names(body) == [tool.name for tool in tools]
    assert body.get("tool_choice", {"type": "auto"}) == {"type": "auto"}


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param("'claude-opus-4-1' does not support output format.", id="a model"),
        pytest.param("output_config.format: Extra inputs are not permitted", id="a server without"),
        pytest.param("Schema is too complex for compilation.", id="this schema"),
    ],
)
async def test_a_claude_without_schema_support_gets_the_answer_tool(refusal: str) -> None:
    network = Network([refused(refusal), body_of(ANTHROPIC, "final_answer", '{"city": "Rom"}')])
    model = provider(ANTHROPIC, network)
    reply = await model.complete(a_request(output_schema=CITY), lambda piece: None)
    await model.close()
    assert reply.text == '{"city":"Rom"}'
    assert ("output_config" in network.body(), names(network.body())) == (False, ["final_answer"])


@pytest.mark.parametrize(
    ("kind", "fields", "offered"),
    [
        pytest.param("anthropic", {"output_schema": OPEN}, ["final_answer"], id="Anthropic, an open schema"),
        pytest.param(
            "anthropic",
            {"output_schema": OPEN, "tools": (SEARCH,)},
            ["search", "final_answer"],
            id="Anthropic, an open schema with tools",
        ),
        pytest.param("ollama", {"tools": (SEARCH,)}, ["search", "final_answer"], id="Ollama, with tools"),
        pytest.param(
            "openrouter",
            {"model": "meta/llama", "tools": (SEARCH,)},
            ["search", "final_answer"],
            id="routed to another",
        ),
        pytest.param("openai", {"output_schema": CITIES}, ["final_answer"], id="OpenAI, a schema that is no object"),
    ],
)
async def test_other_providers_get_a_forced_call_for_the_answer(
    kind: str, fields: dict[str, Any], offered: list[str]
) -> None:
    body = await sent(kind, **fields)
    assert names(body) == offered
    assert body["tool_choice"] == ({"type": "any"} if kind == ANTHROPIC else "required")
    assert "response_format" not in body


@pytest.mark.parametrize(
    ("schema", "arguments", "text"),
    [
        pytest.param(CITY, '{"city": "Rom"}', '{"city":"Rom"}', id="an object"),
        pytest.param(CITIES, '{"value": [{"city": "Rom"}]}', '[{"city":"Rom"}]', id="a wrapped list"),
        pytest.param(CITIES, '{"value": [], "x": 1}', '{"value":[],"x":1}', id="a wrapping with more in it"),
        pytest.param(VALUE, '{"value": 3}', '{"value":3}', id="an object that only looks wrapped"),
        pytest.param(CITIES, '[{"city": "Rom"}]', '[{"city": "Rom"}]', id="a list without its wrapper"),
        pytest.param(CITY, '{"city": ', '{"city": ', id="invalid JSON, left to the gate"),
        pytest.param(CITY, "", "{}", id="nothing"),
    ],
)
@pytest.mark.parametrize("kind", ["anthropic", "ollama"])
async def test_the_answer_call_becomes_the_text(kind: str, schema: dict[str, Any], arguments: str, text: str) -> None:
    asked = a_request(output_schema=schema, tools=(SEARCH,))
    reply, _, _ = await complete_request(kind, body_of(kind, "final_answer", arguments), request=asked)
    assert (reply.text, reply.calls, reply.finish) == (text, (), "stop")
    assert not {"calls", "finish"} & reply.model_fields_set


async def test_a_cut_call_stays_cut() -> None:
    events = message_events(call_block("t1", "final_answer", '{"city": "Ro'), stop="max_tokens")
    reply, _, _ = await complete_request(ANTHROPIC, stream_response(*events), request=a_request(output_schema=CITY))
    assert (reply.text, reply.calls, reply.finish) == ('{"city": "Ro', (), "length")


async def test_an_answer_next_to_other_calls_is_dropped() -> None:
    blocks = [text_block("hm"), call_block("t1", "search", "{}"), call_block("t2", "final_answer", '{"city": "x"}')]
    events = message_events(*blocks, stop="tool_use")
    reply, _, _ = await complete_request(
        ANTHROPIC, stream_response(*events), request=a_request(output_schema=CITY, tools=(SEARCH,))
    )
    assert (reply.text, reply.calls) == ("hm", (ToolCall(call_id="t1", name="search"),))
    assert reply.finish == "tool_calls"


async def test_text_before_the_answer_call_is_dropped() -> None:
    events = message_events(text_block("So:"), call_block("t", "final_answer", '{"city": "x"}'), stop="tool_use")
    reply, _, _ = await complete_request(ANTHROPIC, stream_response(*events), request=a_request(output_schema=CITY))
    assert reply.text == '{"city":"x"}'


@pytest.mark.parametrize("kind", ["anthropic", "ollama", "openai"])
async def test_text_instead_of_a_call_is_left_to_the_gate(kind: str) -> None:
    asked = a_request(output_schema=CITY, tools=(SEARCH,))
    reply, text, _ = await complete_request(kind, response(kind, '{"city": "Rom"}'), request=asked)
    assert reply.text == text == '{"city": "Rom"}'


async def test_without_a_schema_an_invented_call_stays_a_call() -> None:
    reply, _, _ = await complete_request(ANTHROPIC, body_of(ANTHROPIC, "final_answer", "{}"), request=a_request())
    assert [call.name for call in reply.calls] == ["final_answer"]


def refused(message: str) -> http.Response:
    return http.Response(400, json={"error": {"type": "invalid_request_error", "message": message}})


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.", id="a model"
        ),
        pytest.param("This response_format type is unavailable now", id="a server with an older kind"),
        pytest.param("Invalid schema for response_format 'final_answer': 'x' is not permitted.", id="this schema"),
        pytest.param("Unrecognized request argument supplied: response_format", id="a server without"),
        pytest.param("Failed to initialize samplers: failed to parse grammar", id="a grammar that cannot be built"),
    ],
)
async def test_a_server_without_schema_support_gets_the_answer_tool(refusal: str) -> None:
    called = [body_of("openai", "final_answer", '{"city": "Rom"}') for _ in range(2)]
    network = Network([refused(refusal), *called])
    model = provider("openai", network)
    replies = [await model.complete(a_request(output_schema=CITY), lambda piece: None) for _ in range(2)]
    await model.close()
    assert [reply.text for reply in replies] == ['{"city":"Rom"}'] * 2
    assert [("response_format" in network.body(i), names(network.body(i))) for i in range(3)] == [
        (True, []),
        (False, ["final_answer"]),
        (False, ["final_answer"]),
    ]


async def test_a_model_without_forced_calls_may_choose() -> None:
    network = Network(
        [refused("tool_choice: any is not supported by this model"), response(ANTHROPIC, '{"city": "x"}')]
    )
    model = provider(ANTHROPIC, network)
    reply = await model.complete(a_request(output_schema=OPEN), lambda piece: None)
    await model.close()
    assert reply.text == '{"city": "x"}'
    assert "tool_choice" not in network.body()


async def test_a_server_without_schemas_and_tools_gets_the_schema_in_the_prompt() -> None:
    answers = [refused("unknown field: response_format"), refused("some-model does not support tools")]
    network = Network([*answers, response("ollama", '{"city": "Rom"}')])
    model = provider("ollama", network)
    reply = await model.complete(a_request(output_schema=CITY), lambda piece: None)
    await model.close()
    assert reply.text == '{"city": "Rom"}'
    assert (names(network.body()), is_schema_in_prompt(network.body())) == ([], True)
    assert not {"response_format", "tool_choice"} & network.body().keys()


async def test_no_schema_changes_nothing() -> None:
    bodies: list[dict[str, Any]] = []
    for kind in ("openai", ANTHROPIC):
        body = await sent(kind, output_schema=None, tools=(SEARCH,))
        bodies.append(body)
    assert all(names(body) == ["search"] for body in bodies)
    assert not any({"response_format", "output_config"} & body.keys() for body in bodies)
