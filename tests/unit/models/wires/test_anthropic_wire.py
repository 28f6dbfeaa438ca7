"""Anthropic messages: the request that is sent, and how its events are read."""

import json
from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.kept_fields import block_part
from orga.activities.ports import ModelError
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import (
    a_request,
    call_block,
    complete_request,
    message_events,
    stream_response,
    text_block,
    with_keep_alives,
)
from tests.support.model.sdk_types import assert_anthropic_takes

SEARCH = ToolSpec(name="search", description="Find it.", parameters={"properties": {"q": {"type": "string"}}})
CACHED = {"cache_control": {"type": "ephemeral"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig"}
CONVERSATION = (
    Message.of("user", "find a and b"),
    Message.of("system", "Be brief."),
    Message.of(
        role="assistant",
        text="Looking.",
        calls=(
            ToolCall(call_id="c1", name="search", arguments={"q": "a"}),
            ToolCall(call_id="c2", name="search", malformed='{"q": '),
        ),
        blocks=(block_part(THINKING), block_part({"type": "reasoning.text", "text": "of another provider"})),
    ),
    Message.of_result(call_id="c1", tool="search", text="found"),
    Message.of("user", "hurry"),
    Message.of_result(call_id="c2", tool="search", text=" ", is_error=True),
    Message.of("user", " \n"),
)


async def sent(**fields: Any) -> dict[str, Any]:
    _, _, network = await complete_request("anthropic", stream_response(*message_events()), request=a_request(**fields))
    return network.body()


async def test_the_request_is_valid_for_the_types_of_anthropic() -> None:
    body = await sent(
        system=("You help.", "", "You cite."),
        messages=CONVERSATION,
        tools=(SEARCH, ToolSpec(name="now")),
        tool_choice="any",
        settings=ModelSettings(temperature=0.0, stop=("END", " ")),
    )
    assert (
        body.pop("temperature") == 0.0
    )  # it is sent only if it is set, because the types of this API version have none
    assert_anthropic_takes(body)
    assert body["system"] == [
        {"type": "text", "text": "You help."},
        {"type": "text", "text": "You cite."},
        {"type": "text", "text": "Be brief."} | CACHED,
    ]
    assert body["tools"][0] == {
        "name": "search",
        "description": "Find it.",
        "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
    }
    assert (body["max_tokens"], body["tool_choice"]) == (4096, {"type": "any"})
    assert body["stop_sequences"] == ["END"]


async def test_thinking_comes_first_in_its_turn_and_results_in_theirs() -> None:
    body = await sent(messages=CONVERSATION)
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "find a and b"}]},
        {
            "role": "assistant",
            "content": [
                THINKING,
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "a"}},
                {"type": "tool_use", "id": "c2", "name": "search", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "found"}]},
                {"type": "tool_result", "tool_use_id": "c2", "is_error": True},
                {"type": "text", "text": "hurry"} | CACHED,
            ],
        },
    ]


@pytest.mark.parametrize(
    ("fields", "breakpoints"),
    [
        pytest.param({"system": ("a", "b")}, ["system", "messages"], id="one breakpoint after the system text"),
        pytest.param({"tools": (SEARCH,)}, ["tools", "messages"], id="after the last tool without a system text"),
        pytest.param({}, ["messages"], id="the conversation alone"),
        pytest.param({"system": ("a",), "tools": (SEARCH,)}, ["system", "messages"], id="never both"),
    ],
)
async def test_cache_breakpoints_are_placed_at_stable_prefixes(fields: dict[str, Any], breakpoints: list[str]) -> None:
    body = await sent(**fields)
    assert [part for part in ("tools", "system", "messages") if "cache_control" in json.dumps(body.get(part))] == (
        breakpoints
    )
    assert json.dumps(body).count("cache_control") == len(breakpoints)


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        pytest.param([], ["user"], id="no message at all"),
        pytest.param(
            [Message.of("assistant", "hi")],
            ["user", "assistant", "user"],
            id="starts and ends with the assistant",
        ),
        pytest.param([Message.of("user", "a"), Message.of("user", "b")], ["user"], id="two of a role"),
        pytest.param(
            [
                Message.of("user", "a"),
                Message.of("assistant", blocks=(block_part(THINKING),)),
                Message.of("user", "b"),
            ],
            ["user"],
            id="an assistant turn with only thinking",
        ),
    ],
)
async def test_turns_alternate_and_begin_with_the_user(messages: list[Message], roles: list[str]) -> None:
    body = await sent(messages=tuple(messages))
    assert_anthropic_takes(body)
    assert [message["role"] for message in body["messages"]] == roles
    assert all(message["content"] for message in body["messages"])


async def test_a_conversation_with_calls_declares_their_tools_even_if_none_is_offered() -> None:
    body = await sent(messages=CONVERSATION)
    assert [tool["name"] for tool in body["tools"]] == ["search"]
    assert body["tool_choice"] == {"type": "none"}


async def test_text_calls_thinking_and_usage_are_read() -> None:
    thinking: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "sig"},
    ]
    redacted: list[dict[str, Any]] = [{"type": "redacted_thinking", "data": "AA"}]
    blocks = [
        thinking,
        redacted,
        text_block("I'll ", "look. 😀"),
        call_block("t1", "search", '{"q"', ': "a"}'),
        call_block("t2", "now"),
    ]
    events = message_events(*blocks, stop="tool_use", cache_read_input_tokens=30, cache_creation_input_tokens=9)
    reply, text, _ = await complete_request("anthropic", stream_response(*events))
    assert text == "I'll look. 😀"
    assert reply.model_dump(exclude_unset=True) == {
        "parts": (
            {"kind": "thinking", "format": "thinking", "text": "hm", "data": {"signature": "sig"}},
            {"kind": "opaque", "format": "redacted_thinking", "data": {"data": "AA"}},
            {"kind": "text", "text": "I'll look. 😀"},
            {"call_id": "t1", "name": "search", "arguments": {"q": "a"}},
            {"call_id": "t2", "name": "now"},
        ),
        "finish": "tool_calls",
        "usage": {"input_tokens": 40, "output_tokens": 5, "cached_input_tokens": 30},
    }


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "refusal"),
    ],
)
async def test_each_stop_reason_becomes_a_finish_reason(stop: str, finish: str) -> None:
    reply, _, _ = await complete_request("anthropic", stream_response(*message_events(text_block("hi"), stop=stop)))
    assert reply.finish == finish


async def test_a_refused_turn_with_calls_is_a_refusal() -> None:
    reply, _, _ = await complete_request(
        "anthropic", stream_response(*message_events(call_block("t", "now"), stop="refusal"))
    )
    assert reply.finish == "refusal"


async def test_texts_around_a_call_are_kept_apart() -> None:
    events = message_events(text_block("before"), call_block("t", "now"), text_block("after"), stop="tool_use")
    reply, text, _ = await complete_request("anthropic", stream_response(*events))
    assert reply.text == text == "before\n\nafter"


async def test_a_response_without_streaming_is_read() -> None:
    content = [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "t", "name": "search", "input": {"q": "a"}}]
    whole: dict[str, Any] = {
        "type": "message",
        "model": "real",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {},
    }
    reply, text, _ = await complete_request("anthropic", http.Response(200, json=whole))
    assert text == "hi"
    assert reply.calls == (ToolCall(call_id="t", name="search", arguments={"q": "a"}),)
    assert reply.model == "real"


@pytest.mark.parametrize(
    ("kind_of_error", "kind", "retryable"),
    [
        ("overloaded_error", "Overloaded", True),
        ("rate_limit_error", "RateLimited", True),
        ("api_error", "ServerError", True),
        ("timeout_error", "Timeout", True),
        ("invalid_request_error", "InvalidRequest", False),
        ("permission_error", "PermissionDenied", False),
        ("unheard_of_error", "ServerError", True),
    ],
)
async def test_each_error_event_has_its_kind_and_retry_rule(kind_of_error: str, kind: str, retryable: bool) -> None:
    error = {"type": "error", "error": {"type": kind_of_error, "message": "sorry"}}
    with pytest.raises(ModelError, match=r"^anthropic broke off its reply: sorry$") as caught:
        await complete_request("anthropic", stream_response(*list(message_events(text_block("a")))[:4], error))
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


@pytest.mark.parametrize("kept", range(8))
async def test_a_stream_cut_before_its_end_is_retryable(kept: int) -> None:
    events = list(message_events(text_block("a", "b")))
    assert len(events) == 8
    if events[kept - 1]["type"] == "message_delta":
        kept -= 1
    with pytest.raises(ModelError) as caught:
        await complete_request("anthropic", stream_response(*events[:kept]))
    assert (caught.value.kind, caught.value.retryable) == ("BadStream", True)


async def test_keep_alives_are_ignored() -> None:
    odd: dict[str, Any] = {"type": ["message"], "content_block": {"type": {}}}
    frames = [odd, *message_events(text_block("hi"), text_block(), call_block("c", "now", "{}"), stop="tool_use")]
    reply, text, _ = await complete_request("anthropic", stream_response(*with_keep_alives(frames)))
    assert (text, reply.calls, reply.finish) == ("hi", (ToolCall(call_id="c", name="now"),), "tool_calls")


@pytest.mark.parametrize("pieces", [("{}", '{"q"', ': "a"}'), ('{"q": "a"}', '{"q": "a"}'), ("{}", "", '{"q": "a"}')])
async def test_a_placeholder_before_the_arguments_is_ignored(pieces: tuple[str, ...]) -> None:
    events = message_events(call_block("t", "search", *pieces), stop="tool_use")
    reply, _, _ = await complete_request("anthropic", stream_response(*events))
    assert reply.calls == (ToolCall(call_id="t", name="search", arguments={"q": "a"}),)


@pytest.mark.parametrize("kind", [{"type": "message"}, {}])
async def test_a_whole_message_without_a_content_type_is_read(kind: dict[str, str]) -> None:
    whole = {**kind, "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}
    reply, _, _ = await complete_request("anthropic", http.Response(200, content=json.dumps(whole).encode()))
    assert (reply.text, reply.finish) == ("hi", "stop")
