"""Providers that refuse what the real ones refuse, with the same errors, and otherwise follow a script of three turns.

Each turn except the last thinks and calls. The thinking has to be returned unchanged before the calls of its turn.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from orga.activities.adapters import http
from tests.support.model.providers import (
    call_block,
    call_item,
    chunk,
    message_events,
    message_item,
    response_events,
    stream_response,
    text_block,
)
from tests.support.model.sdk_types import assert_anthropic_takes, assert_openai_takes, assert_responses_takes

FILTERED = {"$filter": "size gt 3", "page[size]": 5}
"""The arguments of each call, by the tool's names for them."""

DONE = "It is done."
TURNS = 3

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


class Refused(Exception):
    """A request that the provider refuses, with the text of the refusal."""


@dataclass
class Strict:
    """One provider: a function for `http.MockTransport` that keeps the requests."""

    reply: Callable[[str, dict[str, Any]], http.Response]
    """Answers a body posted to a path, or raises `Refused`."""
    paths: list[str] = field(default_factory=list[str])
    refusals: list[str] = field(default_factory=list[str])

    def __call__(self, request: http.Request) -> http.Response:
        path = "/" + request.url.path.partition("/v1/")[2]
        self.paths.append(path)
        try:
            return self.reply(path, json.loads(request.content))
        except Refused as refused:
            self.refusals.append(str(refused))
            error = {"message": str(refused), "type": "invalid_request_error", "param": None, "code": None}
            return http.Response(400, json={"type": "error", "error": error})


def openai(path: str, body: dict[str, Any]) -> http.Response:
    """Answer like OpenAI's reasoning models."""
    if body.get("max_output_tokens", 16) < 16:
        raise Refused("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.")
    if path == "/chat/completions":
        model = body["model"]
        raise Refused(
            f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To "
            f"use function "
            "tools, use /v1/responses or set reasoning_effort to 'none'."
        )
    assert path == "/responses"
    assert_responses_takes(body)
    if "temperature" in body:
        raise Refused("Unsupported parameter: 'temperature' is not supported with this model.")
    for index, tool in enumerate(body["tools"]):
        _check_definition(f"tools[{index}]", tool["name"], tool["parameters"])
    items = body["input"]
    turn = sum(item.get("type") == "reasoning" for item in items)
    _check_answered(
        [item["call_id"] for item in items if item.get("type") == "function_call"],
        [item["call_id"] for item in items if item.get("type") == "function_call_output"],
        turn,
    )
    for number in range(turn):
        place = items.index(_reasoning(number)) if _reasoning(number) in items else -1
        if place < 0 or items[place + 1].get("type") != "function_call":
            raise Refused(f"Item 'fc_{number}' of type 'function_call' was provided without its 'reasoning' item.")
    if turn == TURNS - 1:
        return stream_response(*response_events(message_item(DONE)))
    calls = [
        call_item(call_id, name, text) for call_id, name, text in _calls(turn, _offered(body["tools"], "parameters"))
    ]
    return stream_response(*response_events(_reasoning(turn), *calls))


def openai_gateway(path: str, body: dict[str, Any]) -> http.Response:
    """Answer like a gateway to OpenAI's reasoning models that has only Chat Completions."""
    if path != "/chat/completions":
        return http.Response(404, json={"detail": "Not Found"})
    assert_openai_takes(body)
    if "max_tokens" in body:
        raise Refused(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
    if body.get("temperature", 1) != 1:
        raise Refused(
            "Unsupported value: 'temperature' does not support 0.3 with this model. Only the default (1) value is "
            "supported."
        )
    for index, tool in enumerate(body["tools"]):
        _check_definition(f"tools[{index}].function", tool["function"]["name"], tool["function"]["parameters"])
    replies = [message for message in body["messages"] if message["role"] == "assistant"]
    turn = len(replies)
    called = [call["id"] for message in replies for call in message["tool_calls"]]
    _check_answered(called, [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"], turn)
    return _chat_turn(turn, body)


def anthropic(path: str, body: dict[str, Any]) -> http.Response:
    """Answer like Anthropic's models that think by default."""
    assert path == "/messages"
    if "temperature" in body:
        raise Refused("`temperature` is deprecated for this model.")
    assert_anthropic_takes(body)
    thinking_set = body.get("thinking", {"type": "adaptive"})
    if thinking_set["type"] != "disabled" and body.get("tool_choice", {}).get("type") in {"any", "tool"}:
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
    if not 1_024 <= thinking_set.get("budget_tokens", 1_024) < body["max_tokens"]:
        raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`, which must be at least 1024.")
    for index, tool in enumerate(body["tools"]):
        _check_definition(f"tools.{index}.custom", tool["name"], tool["input_schema"])
    blocks = [(message["role"], block) for message in body["messages"] for block in message["content"]]
    turn = sum(block["type"] == "thinking" for _, block in blocks)
    called = [block["id"] for _, block in blocks if block["type"] == "tool_use"]
    _check_answered(called, [block["tool_use_id"] for _, block in blocks if block["type"] == "tool_result"], turn)
    thought = [message["content"][0] for message in body["messages"] if message["role"] == "assistant"]
    if thought != [_thinking(number) for number in range(turn)]:
        raise Refused("messages.1.content.0: Invalid `signature` in `thinking` block")
    if turn == TURNS - 1:
        return stream_response(*message_events(text_block(DONE)))
    thinking = _thinking(turn)
    start = [{"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "hm"}]
    made = [call_block(*call) for call in _calls(turn, _offered(body["tools"], "input_schema"))]
    signed = [*start, {"type": "signature_delta", "signature": thinking["signature"]}]
    return stream_response(*message_events(signed, *made, stop="tool_use"))


def openrouter(path: str, body: dict[str, Any]) -> http.Response:
    """Answer like OpenRouter for a model of Anthropic."""
    assert path == "/chat/completions"
    reasoning = body.get("reasoning", {})
    if len(reasoning.keys() & {"effort", "max_tokens"}) > 1:
        raise Refused('Only one of "reasoning.effort" and "reasoning.max_tokens" can be specified')
    if reasoning.get("effort", "none") != "none" and body.get("tool_choice") == "required":
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
    assert_openai_takes(body, "reasoning", "reasoning_details", "cache_control")
    for index, tool in enumerate(body["tools"]):
        _check_definition(f"tools.{index}.custom", tool["function"]["name"], tool["function"]["parameters"])
    replies = [message for message in body["messages"] if message["role"] == "assistant"]
    turn = len(replies)
    called = [call["id"] for message in replies for call in message["tool_calls"]]
    _check_answered(called, [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"], turn)
    if [message.get("reasoning_details") for message in replies] != [[_detail(number)] for number in range(turn)]:
        raise Refused("messages.1.content.0: Invalid `signature` in `thinking` block")
    return _chat_turn(turn, body, chunk(reasoning_details=[_detail(turn)]))


def _chat_turn(turn: int, body: dict[str, Any], *thinking: dict[str, Any]) -> http.Response:
    if turn == TURNS - 1:
        return stream_response(chunk("stop", content=DONE), "[DONE]")
    made = [
        {"index": index, "id": call_id, "function": {"name": name, "arguments": text}}
        for index, (call_id, name, text) in enumerate(_calls(turn, _offered(body["tools"], "parameters")))
    ]
    return stream_response(*thinking, chunk("tool_calls", tool_calls=made), "[DONE]")


def _check_definition(place: str, name: str, schema: dict[str, Any]) -> None:
    if not _NAME.fullmatch(name):
        raise Refused(f"{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
    if schema.get("type") != "object" or {"anyOf", "oneOf", "allOf", "enum", "not"} & schema.keys():
        raise Refused(
            f"{place}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level; schema must "
            "have type 'object'"
        )
    if bad := [key for key in schema.get("properties", {}) if not _KEY.fullmatch(key)]:
        raise Refused(f"{place}.input_schema.properties: Property keys should match pattern '{_KEY.pattern}': {bad}")


def _check_answered(called: list[str], answered: list[str], turn: int) -> None:
    if called != answered or len(called) != 2 * turn:
        raise Refused(f"No tool output found for the function calls {called}, {answered}.")


def _offered(tools: list[dict[str, Any]], schema: str) -> list[tuple[str, list[str]]]:
    """Return name and properties of each tool."""
    functions = [tool.get("function", tool) for tool in tools]
    return [(tool["name"], list(tool[schema].get("properties", {}))) for tool in functions]


def _calls(turn: int, offered: list[tuple[str, list[str]]]) -> list[tuple[str, str, str]]:
    """Return two calls of a turn, with the offered names: of this turn's tool, and of the last tool."""
    made = (offered[turn % len(offered)], offered[-1])
    texts = (json.dumps(dict(zip(names, FILTERED.values(), strict=False))) for _, names in made)
    return [
        (f"call_{turn}_{place}", name, text) for place, ((name, _), text) in enumerate(zip(made, texts, strict=True))
    ]


def _reasoning(turn: int) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": f"gAAAA{turn}+/é=="}


def _thinking(turn: int) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": f"Eq{turn}+/=="}


def _detail(turn: int) -> dict[str, Any]:
    return {
        "type": "reasoning.text",
        "index": 0,
        "text": "hm",
        "signature": f"Eq{turn}+/==",
        "format": "anthropic-claude-v1",
    }
