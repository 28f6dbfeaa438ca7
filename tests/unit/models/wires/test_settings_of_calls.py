"""Settings of a run and of an endpoint reach the provider, and nothing replaces what a run decides itself."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from pydantic import ValidationError

from orga.activities.adapters import http
from orga.activities.adapters.models.kept_fields import block_part, kept_parts
from orga.activities.adapters.models.model_settings import ModelNotConfigured
from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.ports import ModelError
from orga.client.config.sections import ModelsConfig
from orga.workflows.types.messages import Message
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.endpoints import EndpointSettings
from orga.workflows.types.parts import ThinkingPart, ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import (
    Network,
    a_request,
    complete_request,
    message_events,
    stream_response,
    text_block,
    text_response,
)
from tests.support.model.sdk_types import assert_anthropic_takes, assert_openai_takes, assert_responses_takes

ALL = ModelSettings(
    temperature=0.5,
    top_p=0.9,
    seed=7,
    stop=("END",),
    service_tier="auto",
    parallel_tool_calls=False,
    cache_ttl="1h",
)
TOOLS = (ToolSpec(name="now"),)


@pytest.mark.parametrize(
    ("kind", "takes", "expected", "unknown", "left_out"),
    [
        pytest.param(
            "openai-compatible",
            assert_openai_takes,
            {
                "temperature": 0.5,
                "top_p": 0.9,
                "seed": 7,
                "stop": ["END"],
                "service_tier": "auto",
                "parallel_tool_calls": False,
            },
            set[str](),
            ["cache_ttl"],
            id="Chat Completions",
        ),
        pytest.param(
            "responses",
            assert_responses_takes,
            {"temperature": 0.5, "top_p": 0.9, "service_tier": "auto", "parallel_tool_calls": False},
            set[str](),
            ["cache_ttl", "seed", "stop"],
            id="Responses",
        ),
        pytest.param(
            "anthropic",
            assert_anthropic_takes,
            {
                "temperature": 0.5,
                "top_p": 0.9,
                "stop_sequences": ["END"],
                "service_tier": "auto",
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
            },
            {"temperature", "top_p"},
            ["seed"],
            id="Messages",
        ),
    ],
)
async def test_each_protocol_gets_what_it_has_and_the_rest_is_reported(
    kind: str,
    takes: Callable[[dict[str, Any]], None],
    expected: dict[str, Any],
    unknown: set[str],
    left_out: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`unknown` are the fields that the SDK's newest type lacks. They are sent only because they are set."""
    request = a_request(settings=ALL, tools=TOOLS)
    with caplog.at_level(logging.WARNING):
        _, _, network = await complete_request(kind, text_response(kind), request=request)
    body = network.body()
    assert {name: body.get(name) for name in expected} == expected
    takes({name: value for name, value in body.items() if name not in unknown})
    reports = [record.message for record in caplog.records if record.message.startswith("some-model: ")]
    assert reports == [f"some-model: {name} is left out, because the protocol does not accept it" for name in left_out]


CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
TALK = (
    Message.of("user", "find it"),
    Message.of("system", "Be brief."),
    Message.of(
        "assistant",
        "Looking.",
        (ToolCall(call_id="a", name="look", arguments={"a": "b"}), ToolCall(call_id="b", name="look", malformed="{")),
        blocks=[
            block_part({"type": "thinking", "thinking": "hm", "signature": "s"}),
            block_part({"type": "redacted_thinking", "data": "x"}),
            block_part({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g"}),
            block_part({"type": "reasoning.text", "text": "hm", "signature": "s"}),
            ThinkingPart(kind="thinking", format="chat.reasoning_content", text="hm"),
            *kept_parts("chat.message", {"extra_content": {"google": {}}, "thinking_blocks": [{"type": "thinking"}]}),
        ],
    ),
    Message.of_result("found", "a", "look"),
    Message.of("user", "hurry"),
    Message.of_result("no JSON", "b", "look", is_error=True),
    Message.of("assistant", "Here."),
    Message.of("user", "and more"),
)


@pytest.mark.parametrize("thinking", [{"effort": "high"}, {"effort": "none"}, {"thinking_tokens": 2_000}])
@pytest.mark.parametrize("choice", ["auto", "any", "none"])
@pytest.mark.parametrize(
    ("api", "takes", "extras"),
    [
        ("chat", assert_openai_takes, {"reasoning_content", "reasoning_details", "extra_content", "thinking_blocks"}),
        ("responses", assert_responses_takes, {"seed", "stop"}),
        ("messages", assert_anthropic_takes, {"temperature", "top_p", "seed"}),
    ],
)
async def test_a_request_with_everything_fits_the_types_of_the_provider(
    api: Any, takes: Callable[..., None], extras: set[str], choice: Any, thinking: dict[str, Any]
) -> None:
    """`extras` are the fields that the SDK's newest types lack. `house_field` is one of the configuration."""
    house = EndpointSettings(api=api, base_url="http://house.test/v1", extra_body={"house_field": {"a": 1}})
    network = Network([text_response(api) for _ in range(2)])
    registry = ModelRegistry({}, transport=http.MockTransport(network), endpoints={"house": house})
    asked, name = registry.resolve("house:m")
    settings = ModelSettings.model_validate({field: value for field, value in ALL if value is not None} | thinking)
    fields: dict[str, Any] = {"tools": (*TOOLS, ToolSpec(name="look", parameters=CLOSED)), "tool_choice": choice}
    request = a_request(model=name, system=("Help.", "Cite."), messages=TALK, settings=settings, **fields)
    await asked.complete(request, lambda text: None)
    await asked.complete(replace(request, tools=(), output_schema=CLOSED), lambda text: None)
    await registry.close()
    for index in range(2):
        body = network.body(index)
        takes(body, "house_field", *extras)
        assert body["house_field"] == {"a": 1}


@pytest.mark.parametrize("kind", ["openai-compatible", "responses", "anthropic"])
async def test_nothing_is_sent_that_is_not_set(kind: str) -> None:
    _, _, network = await complete_request(kind, text_response(kind), request=a_request(tools=TOOLS))
    own = {"model", "messages", "input", "tools", "stream", "stream_options", "max_tokens", "max_output_tokens"}
    assert network.body().keys() <= own | {"store", "include"}


@pytest.mark.parametrize(
    ("kind", "setting", "refusal"),
    [
        ("openai-compatible", "seed", "Unrecognized request argument supplied: seed"),
        ("openai-compatible", "stop", "Unsupported parameter: 'stop' is not supported with this model."),
        ("openai-compatible", "parallel_tool_calls", "parallel_tool_calls: Extra inputs are not permitted"),
        ("responses", "service_tier", "Unknown parameter: 'service_tier'."),
        ("anthropic", "top_p", "`top_p` is deprecated for this model."),
    ],
)
async def test_a_setting_that_a_model_refuses_is_left_out_and_reported(
    kind: str, setting: str, refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = http.Response(400, json={"error": {"type": "invalid_request_error", "message": refusal}})
    with caplog.at_level(logging.WARNING):
        request = a_request(settings=ALL, tools=TOOLS)
        _, _, network = await complete_request(kind, refused, text_response(kind), request=request)
    assert [setting in network.body(index) for index in range(2)] == [True, False]
    assert f"some-model: {setting} is left out, because the model does not accept it" in caplog.messages


@pytest.mark.parametrize(("ttl", "mark"), [("5m", {"ttl": "5m"}), ("1h", {"ttl": "1h"}), (None, {})])
@pytest.mark.parametrize("kind", ["anthropic", "openrouter"])
async def test_the_cache_lives_as_long_as_it_is_set(kind: str, ttl: Any, mark: dict[str, str]) -> None:
    request = a_request(model="anthropic/claude-opus-5", settings=ModelSettings(cache_ttl=ttl))
    _, _, network = await complete_request(kind, text_response(kind), request=request)
    marks = [part["cache_control"] for message in network.body()["messages"] for part in message["content"]]
    assert marks == [{"type": "ephemeral"} | mark]


async def cost(counts: dict[str, Any], ttl: Any = None) -> float:
    first, *rest = message_events(text_block("hi"))
    first["message"]["usage"] = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 10**6} | counts
    rest = [{**frame, "usage": {"output_tokens": 0}} if "usage" in frame else frame for frame in rest]
    request = a_request(model="claude-sonnet-4-5", settings=ModelSettings(cache_ttl=ttl))
    reply, _, _ = await complete_request("anthropic", stream_response(first, *rest), request=request)
    assert reply.cost_usd is not None
    return reply.cost_usd


async def test_an_hour_in_the_cache_costs_more_than_five_minutes() -> None:
    # a prompt of a million tokens costs twice the list price of a shorter one
    short = await cost({"cache_creation": {"ephemeral_5m_input_tokens": 10**6, "ephemeral_1h_input_tokens": 0}})
    long = await cost({"cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 10**6}})
    assert (short, long) == (pytest.approx(7.5, abs=0.01), pytest.approx(12.0, abs=0.01))
    assert await cost({}, "1h") == long


KEYS = {"OPENROUTER_API_KEY": "k-1234567890", "TEAM_TOKEN": "t-1234567890"}


async def test_an_endpoint_adds_fields_and_headers_and_the_requests_own_win() -> None:
    settings = EndpointSettings(
        extra_body={"provider": {"order": ["a"]}, "reasoning": {"exclude": True, "effort": "low"}, "temperature": 1},
        extra_headers={"X-Team": "blue"},
        headers_from={"X-Token": "TEAM_TOKEN"},
    )
    network = Network([text_response("openrouter")])
    registry = ModelRegistry(KEYS, transport=http.MockTransport(network), endpoints={"openrouter": settings})
    asked, name = registry.resolve("openrouter:a/b")
    await asked.complete(a_request(model=name, settings=ModelSettings(effort="high", temperature=0)), lambda text: None)
    await registry.close()
    body, headers = network.body(), network.requests[0].headers
    assert (body["provider"], body["reasoning"]) == ({"order": ["a"]}, {"exclude": True, "effort": "high"})
    assert (body["temperature"], body["model"], body["stream"]) == (0, "a/b", True)
    assert (headers["x-team"], headers["x-token"]) == ("blue", "t-1234567890")
    assert headers["authorization"] == "Bearer k-1234567890"


def test_a_header_needs_its_variable() -> None:
    endpoints = {"openrouter": EndpointSettings(headers_from={"X-Token": "MISSING"})}
    registry = ModelRegistry(KEYS, endpoints=endpoints)
    with pytest.raises(ModelNotConfigured, match="the header X-Token needs MISSING, which is not set"):
        registry.check("openrouter:a/b")


@pytest.mark.parametrize(
    "name", ["model", "models", "messages", "tools", "tool_choice", "stream", "plugins", "max_tokens", "input"]
)
def test_an_extra_field_cannot_replace_what_the_run_decides(name: str) -> None:
    with pytest.raises(ValidationError, match=f"cannot set {name}, which the run itself decides"):
        EndpointSettings(extra_body={name: 1})


@pytest.mark.parametrize("where", ["extra_headers", "headers_from"])
@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "Host", "Content-Length"])
def test_an_extra_header_cannot_replace_those_of_the_client(where: str, name: str) -> None:
    with pytest.raises(ValidationError, match=f"cannot set {name.lower()}, which the client sets itself"):
        EndpointSettings.model_validate({where: {name: "X"}})


@pytest.mark.parametrize(
    "given",
    [{"base_urls": {"opnai": "http://a/v1"}}, {"endpoints": {"opnai": {}}}, {"base_urls": {"offline": "http://a/v1"}}],
)
def test_a_provider_that_nobody_knows_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="is no provider with a server"):
        ModelsConfig(**given)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
HI = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@asynccontextmanager
async def server(pieces: list[bytes], pause_s: float) -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """Serve one answer in pieces, with a pause after each. The event is set when the client has closed."""
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
            await reader.read()
        finally:
            closed.set()
            writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with running:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}/v1", closed


async def ask(url: str, endpoint: EndpointSettings, settings: ModelSettings) -> str:
    registry = ModelRegistry({}, {"openai-compatible": url}, endpoints={"openai-compatible": endpoint})
    asked, name = registry.resolve("openai-compatible:m")
    try:
        return (await asked.complete(a_request(model=name, settings=settings), lambda text: None)).text
    finally:
        await registry.close()


@pytest.mark.parametrize(
    ("endpoint", "settings"),
    [
        pytest.param(EndpointSettings(silence_s=1), ModelSettings(), id="of the endpoint"),
        pytest.param(EndpointSettings(), ModelSettings(silence_s=1), id="of the agent"),
    ],
)
@pytest.mark.parametrize("sent", [[], [HEAD], [HEAD + HI[:40]]], ids=["no answer", "no event", "half an event"])
async def test_a_silent_stream_is_cut_off_and_can_be_retried(
    sent: list[bytes], endpoint: EndpointSettings, settings: ModelSettings
) -> None:
    began = monotonic()
    async with server(sent, 0) as (url, closed):
        with pytest.raises(ModelError, match="kept silent too long") as caught:
            await ask(url, endpoint, settings)
        await asyncio.wait_for(closed.wait(), 5)
    assert (caught.value.kind, caught.value.retryable) == ("Timeout", True)
    assert 0.9 < monotonic() - began < 8


@pytest.mark.parametrize("ping", [b": ping\n\n", b"\n", b":"], ids=["a comment", "an empty line", "a single byte"])
async def test_any_byte_ends_the_silence(ping: bytes) -> None:
    pieces = [HEAD, ping, ping, ping, ping, b"\n\n" + HI]
    async with server(pieces, 0.4) as (url, _):
        assert await ask(url, EndpointSettings(silence_s=1), ModelSettings()) == "hi"


def test_ten_minutes_of_silence_are_the_default() -> None:
    assert EndpointSettings().silence_s == 600
