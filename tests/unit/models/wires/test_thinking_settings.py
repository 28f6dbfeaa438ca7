"""The effort of a run, or its tokens for thinking, reach each provider in its own form."""

import logging
from typing import Any

import pytest
from pydantic import ValidationError

from orga.activities.adapters import http
from orga.activities.adapters.models.kept_fields import block_part
from orga.activities.adapters.models.registry import ModelRegistry
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import (
    Network,
    a_request,
    complete_request,
    text_response,
)
from tests.support.model.sdk_types import assert_anthropic_takes, assert_openai_takes, assert_responses_takes

GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"
DEEPSEEK = "https://api.deepseek.com"
KEYS = {
    "OPENAI_API_KEY": "k-1234567890",
    "ANTHROPIC_API_KEY": "k-1234567890",
    "OPENROUTER_API_KEY": "k-1234567890",
    "OPENAI_COMPATIBLE_API_KEY": "k-1234567890",
}


async def sent_body(model: str, settings: ModelSettings, base_url: str = "", **fields: Any) -> dict[str, Any]:
    """Return the body that the provider of a model gets."""
    network = Network([])

    def reply(request: http.Request) -> http.Response:
        network.requests.append(request)
        return text_response(request.url.path.rpartition("/")[2])

    urls = {model.partition(":")[0]: base_url} if base_url else {}
    registry = ModelRegistry(KEYS, urls, transport=http.MockTransport(reply))
    asked, name = registry.resolve(model)
    await asked.complete(a_request(model=name, settings=settings, **fields), lambda text: None)
    await registry.close()
    return network.body()


def added(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a body that say how much to think."""
    names = {"reasoning", "reasoning_effort", "thinking", "output_config", "extra_body"}
    return {name: value for name, value in body.items() if name in names}


COMPATIBLE = "openai-compatible:m"


@pytest.mark.parametrize(
    ("model", "base_url", "settings", "expected"),
    [
        ("openai:gpt-6", "", {"effort": "none"}, {"reasoning": {"effort": "none"}}),
        ("openai:gpt-6", "", {"effort": "max"}, {"reasoning": {"effort": "max"}}),
        ("openai:gpt-6", "", {"thinking_tokens": 3_000}, {"reasoning": {"effort": "medium"}}),
        (
            "anthropic:claude-opus-5",
            "",
            {"effort": "high"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        ("anthropic:claude-opus-5", "", {"effort": "none"}, {"thinking": {"type": "disabled"}}),
        (
            "anthropic:claude-haiku-4-5",
            "",
            {"thinking_tokens": 3_000},
            {"thinking": {"type": "enabled", "budget_tokens": 3_000}},
        ),
        ("openrouter:x/y", "", {"effort": "low"}, {"reasoning": {"effort": "low"}}),
        ("openrouter:x/y", "", {"thinking_tokens": 900}, {"reasoning": {"max_tokens": 900}}),
        ("ollama:qwen3", "", {"effort": "none"}, {"reasoning_effort": "none"}),
        (COMPATIBLE, "http://vllm.test/v1", {"effort": "medium"}, {"reasoning_effort": "medium"}),
        (COMPATIBLE, GEMINI, {"effort": "max"}, {"reasoning_effort": "high"}),
        (
            COMPATIBLE,
            GEMINI,
            {"thinking_tokens": 700},
            {"extra_body": {"google": {"thinking_config": {"thinking_budget": 700}}}},
        ),
        (COMPATIBLE, DEEPSEEK, {"effort": "none"}, {"thinking": {"type": "disabled"}}),
        (COMPATIBLE, DEEPSEEK, {"effort": "max"}, {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        (COMPATIBLE, DEEPSEEK, {"effort": "medium"}, {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
        ("openai:gpt-6", "", {}, {}),
        ("anthropic:claude-opus-5", "", {}, {}),
        (COMPATIBLE, DEEPSEEK, {}, {}),
    ],
)
async def test_each_provider_gets_its_own_form(
    model: str, base_url: str, settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    body = await sent_body(model, ModelSettings(**settings), base_url)
    assert added(body) == expected
    if model.startswith("anthropic:"):
        assert_anthropic_takes(body)
    elif model.startswith("openai:"):
        assert_responses_takes(body)
    else:  # these are unknown to OpenAI's types
        assert_openai_takes({name: body[name] for name in body.keys() - {"reasoning", "thinking", "extra_body"}})


async def test_an_effort_and_a_schema_share_their_field() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    body = await sent_body("anthropic:claude-opus-5", ModelSettings(effort="low"), output_schema=schema)
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert_anthropic_takes(body)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        pytest.param(4_096, {"type": "enabled", "budget_tokens": 2_048}, id="half of the limit, so that there is room"),
        pytest.param(1_000, {"type": "disabled"}, id="no room at all"),
    ],
)
async def test_thinking_leaves_room_for_an_answer(limit: int, expected: dict[str, Any]) -> None:
    settings = ModelSettings(thinking_tokens=8_000)
    body = await sent_body("anthropic:claude-haiku-4-5", settings, max_output_tokens=limit)
    assert body["thinking"] == expected


THOUGHT = block_part({"type": "thinking", "thinking": "hm", "signature": "sig"})


@pytest.mark.parametrize(("blocks", "kind"), [((), "disabled"), ((THOUGHT,), "enabled")])
async def test_a_budget_is_not_sent_in_a_turn_that_began_without_thinking(blocks: Any, kind: str) -> None:
    """Anthropic refuses it: the turn would have to begin with a thinking block."""
    messages = (
        Message.of("user", "go"),
        Message.of("assistant", calls=(ToolCall(call_id="c", name="now"),), blocks=blocks),
        Message.of_result(call_id="c", text="noon"),
    )
    settings = ModelSettings(thinking_tokens=2_000)
    body = await sent_body("anthropic:claude-haiku-4-5", settings, messages=messages)
    assert body["thinking"]["type"] == kind


def refused(message: str) -> http.Response:
    return http.Response(400, json={"error": {"type": "invalid_request_error", "message": message}})


@pytest.mark.parametrize(
    ("kind", "settings", "refusal", "expected"),
    [
        pytest.param(
            "openai",
            {"effort": "max"},
            "Unsupported value: 'reasoning_effort' does not support 'max' with this model. Supported values are: "
            "'low', 'medium', 'high', and 'xhigh'.",
            {"reasoning_effort": "xhigh"},
            id="OpenAI names the levels",
        ),
        pytest.param(
            "openai-compatible",
            {"effort": "none"},
            "Unsupported value: 'reasoning_effort' does not support 'none' with this model. Supported values are: "
            "'minimal', 'low', 'medium', and 'high'.",
            {"reasoning_effort": "minimal"},
            id="a model that always thinks",
        ),
        pytest.param(
            "openai-compatible",
            {"effort": "max"},
            "Input should be 'low', 'medium' or 'high': body.reasoning_effort",
            {"reasoning_effort": "high"},
            id="vLLM",
        ),
        pytest.param(
            "openai-compatible",
            {"effort": "high"},
            "Unrecognized request argument supplied: reasoning_effort",
            {},
            id="a server without any",
        ),
        pytest.param(
            "anthropic",
            {"thinking_tokens": 3_000},
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.',
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
            id="a newer Claude without budgets",
        ),
        pytest.param(
            "anthropic",
            {"effort": "high"},
            "adaptive thinking is not supported on this model",
            {"thinking": {"type": "enabled", "budget_tokens": 16_384}},
            id="an older Claude with budgets only",
        ),
        pytest.param(
            "anthropic",
            {"effort": "max"},
            "This model does not support effort level 'max'. Supported levels: high, low, medium.",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            id="a Claude with fewer levels",
        ),
        pytest.param(
            "anthropic",
            {"effort": "none"},
            '"thinking.type.disabled" is not supported for this model.',
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            id="a Claude that always thinks",
        ),
    ],
)
async def test_what_a_model_refuses_is_replaced_by_the_nearest_and_reported_once(
    kind: str, settings: dict[str, Any], refusal: str, expected: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    request = a_request(settings=ModelSettings(**settings), max_output_tokens=40_000)
    reply = text_response(kind)
    with caplog.at_level(logging.WARNING):
        _, _, network = await complete_request(kind, refused(refusal), reply, request=request)
    assert (added(network.body()), len(network.requests)) == (expected, 2)
    name, value = next(iter(settings.items()))
    [report] = [record.message for record in caplog.records if record.message.startswith("some-model: ")]
    assert report.startswith(f"some-model: {name} {value!r} is ")


@pytest.mark.parametrize(
    ("refusal", "gone"),
    [
        ("Thinking may not be enabled when tool_choice forces tool use.", "tool_choice"),
        ("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.", "temperature"),
    ],
)
async def test_a_field_that_excludes_thinking_gives_way_to_it(refusal: str, gone: str) -> None:
    request = a_request(
        settings=ModelSettings(effort="high", temperature=0.5), tools=(ToolSpec(name="now"),), tool_choice="any"
    )
    _, _, network = await complete_request("anthropic", refused(refusal), text_response("anthropic"), request=request)
    assert network.body()["thinking"] == {"type": "adaptive"}
    assert network.body().get(gone) in (None, {"type": "auto"})


def test_effort_and_tokens_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="effort and thinking_tokens exclude each other"):
        ModelSettings(effort="low", thinking_tokens=5)


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ({}, {"effort": "low"}, {"effort": "low"}),
        ({"temperature": 0}, {"effort": "low", "temperature": 1}, {"effort": "low", "temperature": 0}),
        ({"effort": "none"}, {"thinking_tokens": 7}, {"effort": "none"}),
        ({"thinking_tokens": 7}, {"effort": "max", "temperature": 1}, {"thinking_tokens": 7, "temperature": 1}),
    ],
)
def test_settings_are_joined_and_thinking_comes_from_one_place(
    own: dict[str, Any], other: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert ModelSettings(**own).or_else(ModelSettings(**other)) == ModelSettings(**expected)
