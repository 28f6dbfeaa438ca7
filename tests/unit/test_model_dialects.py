"""A model's refusals teach what it takes; the refusals are the providers' own words."""

from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.blocks import block_part
from orga.activities.ports import ModelError
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.tools import ToolSpec
from tests.support.model.providers import (
    Network,
    a_request,
    chunk,
    completed,
    message_events,
    provider,
    streamed,
    text_block,
)

THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig"}
THOUGHTFUL: dict[str, Any] = {
    "messages": (
        Message.of("user", "go"),
        Message.of("assistant", calls=(ToolCall(call_id="c", name="now"),), blocks=(block_part(THINKING),)),
        Message.of_result(call_id="c", text="noon"),
    )
}


def refused(message: str) -> http.Response:
    return http.Response(400, json={"error": {"type": "invalid_request_error", "message": message}})


def answer(kind: str) -> http.Response:
    return streamed(*message_events(text_block("hi"))) if kind == "anthropic" else streamed(chunk("stop", content="hi"))


@pytest.mark.parametrize(
    ("kind", "refusal", "fields", "gone", "there"),
    [
        pytest.param(
            "openai",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
            "instead.",
            {},
            "max_tokens",
            ("max_completion_tokens", 4096),
            id="the new name of the output limit",
        ),
        pytest.param(
            "openai",
            "Unknown field: max_completion_tokens",
            {"model": "o3"},
            "max_completion_tokens",
            ("max_tokens", 4096),
            id="the old name of the output limit",
        ),
        pytest.param(
            "openai",
            "Unsupported value: 'temperature' does not support 0.3 with this model. Only the default (1) value is"
            " supported.",
            {"temperature": 0.3},
            "temperature",
            ("max_tokens", 4096),
            id="a model without temperature",
        ),
        pytest.param(
            "anthropic",
            "`temperature` is deprecated for this model.",
            {"temperature": 0.3},
            "temperature",
            ("max_tokens", 4096),
            id="a newer Claude without temperature",
        ),
        pytest.param(
            "openai-compatible",
            "stream_options: Extra inputs are not permitted",
            {},
            "stream_options",
            ("stream", True),
            id="a server without usage in streams",
        ),
        pytest.param(
            "anthropic",
            "max_tokens: 16384 > 8192, which is the maximum allowed number of output tokens for this model",
            {"max_output_tokens": 16384},
            None,
            ("max_tokens", 8192),
            id="Claude's ceiling",
        ),
        pytest.param(
            "openai",
            "max_tokens is too large: 16384. This model supports at most 4096 completion tokens, whereas you provided"
            " 16384.",
            {"max_output_tokens": 16384},
            None,
            ("max_tokens", 4096),
            id="GPT's ceiling",
        ),
        pytest.param(
            "openai-compatible",
            "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
            {"max_output_tokens": 16384},
            None,
            ("max_tokens", 8192),
            id="a ceiling as a range",
        ),
        pytest.param(
            "anthropic",
            'tool_choice: type "tool" and "any" are not supported for this model.',
            {"tools": (ToolSpec(name="now"),), "tool_choice": "any"},
            None,
            ("tool_choice", {"type": "auto"}),
            id="a Claude that can't be made to call",
        ),
    ],
)
async def test_a_refusal_is_learned_once(
    kind: str, refusal: str, fields: dict[str, Any], gone: str | None, there: tuple[str, Any]
) -> None:
    network = Network([refused(refusal), answer(kind), answer(kind)])
    model = provider(kind, network)
    for _ in range(2):
        assert (await model.complete(a_request(**fields), lambda text: None)).text == "hi"
    await model.close()
    assert len(network.requests) == 3
    for index in (1, 2):
        assert gone not in network.body(index)
        assert network.body(index)[there[0]] == there[1]


async def test_several_lessons_in_one_call() -> None:
    _, _, network = await completed(
        "openai",
        refused("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        refused("Unsupported value: 'temperature' does not support 0.3"),
        answer("openai"),
        request=a_request(temperature=0.3),
    )
    assert {"max_tokens", "temperature"}.isdisjoint(network.body())


@pytest.mark.parametrize(
    "refusal",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different"
        " conversation.",
        "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
    ],
)
async def test_thinking_that_compaction_made_stale_is_never_sent_again_and_newer_thinking_is(refusal: str) -> None:
    """One request a turn from then on; only what was refused stays away."""
    network = Network([refused(refusal), *[answer("anthropic") for _ in range(3)]])
    model = provider("anthropic", network)
    await model.complete(a_request(**THOUGHTFUL), lambda text: None)
    await model.complete(a_request(messages=went_on("newer")), lambda text: None)
    await model.complete(a_request(messages=went_on("newer", "newest")), lambda text: None)
    await model.close()
    assert [signatures(network.body(index)) for index in range(4)] == [["sig"], [], ["newer"], ["newer", "newest"]]
    assert len(network.requests) == 4


async def test_a_conversation_that_is_compacted_again_loses_only_what_was_before() -> None:
    stale = "Invalid `signature` in `thinking` block"
    taken = [answer("anthropic") for _ in range(4)]
    network = Network([refused(stale), *taken[:2], refused(stale), *taken[2:]])
    model = provider("anthropic", network)
    await model.complete(a_request(**THOUGHTFUL), lambda text: None)
    await model.complete(a_request(messages=went_on("a")), lambda text: None)
    await model.complete(a_request(messages=went_on("a", "b")), lambda text: None)
    await model.complete(a_request(messages=went_on("a", "b", "c")), lambda text: None)
    await model.close()
    sent = [signatures(network.body(index)) for index in range(6)]
    assert sent == [["sig"], [], ["a"], ["a", "b"], [], ["c"]]


async def test_an_endpoint_that_takes_no_thinking_at_all_is_not_offered_any_for_ever() -> None:
    """Such as a gateway that checks signatures which it did not make: two turns show it, then one request a turn."""
    stale = refused("Invalid `signature` in `thinking` block")
    again = refused("Invalid `signature` in `thinking` block")
    network = Network([stale, answer("anthropic"), again, *[answer("anthropic") for _ in range(4)]])
    model = provider("anthropic", network)
    await model.complete(a_request(**THOUGHTFUL), lambda text: None)
    for turns in range(1, 4):
        await model.complete(a_request(messages=went_on(*"abc"[:turns])), lambda text: None)
    await model.close()
    assert [signatures(network.body(index)) for index in range(6)] == [["sig"], [], ["a"], [], [], []]


def went_on(*names: str) -> tuple[Message, ...]:
    """Return the thoughtful conversation with more turns, each with a call and thinking under that signature."""
    turns: list[Message] = []
    for name in names:
        block = {"type": "thinking", "thinking": "hm", "signature": name}
        turns.append(Message.of("assistant", calls=(ToolCall(call_id=name, name="now"),), blocks=(block_part(block),)))
        turns.append(Message.of_result(call_id=name, text="noon"))
    return (*THOUGHTFUL["messages"], *turns)


def signatures(body: dict[str, Any]) -> list[str]:
    blocks = (block for message in body["messages"] for block in message["content"])
    return [block["signature"] for block in blocks if block["type"] == "thinking"]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param("temperature: range: 0..1", id="a value out of range is not silently dropped"),
        pytest.param("tools.0.name: invalid", id="nothing that can be left out"),
        pytest.param("max_tokens: must be greater than 5000", id="a floor is no ceiling"),
    ],
)
async def test_other_refusals_fail_at_once(refusal: str) -> None:
    network = Network([refused(refusal)])
    model = provider("anthropic", network)
    with pytest.raises(ModelError, match=refusal.split(maxsplit=1)[0]) as caught:
        await model.complete(a_request(temperature=3.0), lambda text: None)
    await model.close()
    assert (caught.value.kind, len(network.requests)) == ("InvalidRequest", 1)


async def test_a_server_that_always_refuses_is_not_asked_for_ever() -> None:
    network = Network(
        [refused("Unsupported: use 'max_completion_tokens', unknown field max_tokens; temperature not supported")]
    )
    model = provider("openai", network)
    with pytest.raises(ModelError):
        await model.complete(a_request(temperature=1.0), lambda text: None)
    await model.close()
    assert len(network.requests) <= 6
