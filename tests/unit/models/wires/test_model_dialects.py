"""The client learns from a model's refusals what the model accepts. The refusals are quoted from the providers."""

from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.kept_fields import block_part
from orga.activities.ports import ModelError
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import (
    Network,
    a_request,
    complete_request,
    provider,
    text_response,
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
            {"settings": ModelSettings(temperature=0.3)},
            "temperature",
            ("max_tokens", 4096),
            id="a model without temperature",
        ),
        pytest.param(
            "anthropic",
            "`temperature` is deprecated for this model.",
            {"settings": ModelSettings(temperature=0.3)},
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
            "tool_choice",
            ("max_tokens", 4096),
            id="a Claude without forced calls",
        ),
    ],
)
async def test_a_refusal_is_learned_once(
    kind: str, refusal: str, fields: dict[str, Any], gone: str | None, there: tuple[str, Any]
) -> None:
    network = Network([refused(refusal), text_response(kind), text_response(kind)])
    model = provider(kind, network)
    for _ in range(2):
        assert (await model.complete(a_request(**fields), lambda text: None)).text == "hi"
    await model.close()
    assert len(network.requests) == 3
    for index in (1, 2):
        assert gone not in network.body(index)
        assert network.body(index)[there[0]] == there[1]


async def test_several_refusals_in_one_call_are_learned() -> None:
    _, _, network = await complete_request(
        "openai",
        refused("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        refused("Unsupported value: 'temperature' does not support 0.3"),
        text_response("openai"),
        request=a_request(settings=ModelSettings(temperature=0.3)),
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
async def test_stale_thinking_is_never_sent_again_and_newer_thinking_is(refusal: str) -> None:
    """From then on there is one request for each turn. Only the refused thinking is left out."""
    network = Network([refused(refusal), *[text_response("anthropic") for _ in range(3)]])
    model = provider("anthropic", network)
    await model.complete(a_request(**THOUGHTFUL), lambda text: None)
    await model.complete(a_request(messages=longer_conversation("newer")), lambda text: None)
    await model.complete(a_request(messages=longer_conversation("newer", "newest")), lambda text: None)
    await model.close()
    assert [signatures(network.body(index)) for index in range(4)] == [["sig"], [], ["newer"], ["newer", "newest"]]
    assert len(network.requests) == 4


async def test_a_second_compaction_drops_only_the_thinking_before_it() -> None:
    stale = "Invalid `signature` in `thinking` block"
    taken = [text_response("anthropic") for _ in range(4)]
    network = Network([refused(stale), *taken[:2], refused(stale), *taken[2:]])
    model = provider("anthropic", network)
    await model.complete(a_request(**THOUGHTFUL), lambda text: None)
    await model.complete(a_request(messages=longer_conversation("a")), lambda text: None)
    await model.complete(a_request(messages=longer_conversation("a", "b")), lambda text: None)
    await model.complete(a_request(messages=longer_conversation("a", "b", "c")), lambda text: None)
    await model.close()
    sent = [signatures(network.body(index)) for index in range(6)]
    assert sent == [["sig"], [], ["a"], ["a", "b"], [], ["c"]]


async def test_an_endpoint_that_accepts_no_thinking_is_soon_sent_none() -> None:
    """For example, a gateway may check signatures that it did not create. Two turns show it."""
    stale = refused("Invalid `signature` in `thinking` block")
    again = refused("Invalid `signature` in `thinking` block")
    network = Network([stale, text_response("anthropic"), again, *[text_response("anthropic") for _ in range(4)]])
    model = provider("anthropic", network)
    await model.complete(a_request(**THOUGHTFUL), lambda text: None)
    for turns in range(1, 4):
        await model.complete(a_request(messages=longer_conversation(*"abc"[:turns])), lambda text: None)
    await model.close()
    assert [signatures(network.body(index)) for index in range(6)] == [["sig"], [], ["a"], [], [], []]


def longer_conversation(*names: str) -> tuple[Message, ...]:
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
        pytest.param("tools.0.name: invalid", id="a required field"),
        pytest.param("max_tokens: must be greater than 5000", id="a floor is no ceiling"),
    ],
)
async def test_other_refusals_fail_at_once(refusal: str) -> None:
    network = Network([refused(refusal)])
    model = provider("anthropic", network)
    with pytest.raises(ModelError, match=refusal.split(maxsplit=1)[0]) as caught:
        await model.complete(a_request(settings=ModelSettings(temperature=1.9)), lambda text: None)
    await model.close()
    assert (caught.value.kind, len(network.requests)) == ("InvalidRequest", 1)


async def test_a_server_that_always_refuses_gets_a_bounded_number_of_requests() -> None:
    network = Network(
        [refused("Unsupported: use 'max_completion_tokens', unknown field max_tokens; temperature not supported")]
    )
    model = provider("openai", network)
    with pytest.raises(ModelError):
        await model.complete(a_request(settings=ModelSettings(temperature=1.0)), lambda text: None)
    await model.close()
    assert len(network.requests) <= 6


GUIDED = (
    Message.of("user", "go"),
    Message.of("user", "in the garden"),
    Message.of("assistant", calls=(ToolCall(call_id="c", name="now"),)),
    Message.of_result(call_id="c", tool="now", text="noon"),
    Message.of("user", "hurry"),
    Message.of("system", "Be brief."),
    Message.of("user", "please"),
)


def roles(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"] or "a call") for message in body["messages"]]


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        (400, "After the optional system message, conversation roles must alternate user and assistant roles except "
              "for tool calls and results."),
        (500, "Error rendering prompt with jinja template: \"Conversation roles must alternate user/assistant\""),
        (400, "deepseek-reasoner does not support successive user or assistant messages (messages[1] and messages[2] "
              "in your input). You should interleave the user/assistant messages in the message sequence."),
        (400, "After the (optional) system message(s), user and assistant roles should be alternating."),
        (400, 'messages: roles must alternate between "user" and "assistant", found multiple "user" roles in a row'),
        (400, "Unexpected role 'user' after role 'tool'"),
        (400, "Please ensure that multiturn requests alternate between user and model."),
    ],
)  # fmt: skip
async def test_a_template_that_needs_alternating_roles_gets_them(status: int, refusal: str) -> None:
    network = Network(
        [http.Response(status, json={"error": {"message": refusal}}), text_response("openai"), text_response("openai")]
    )
    model = provider("openai-compatible", network)
    for _ in range(2):
        await model.complete(a_request(system=("You help.", "You cite."), messages=GUIDED), lambda text: None)
    await model.close()
    system = ("system", "You help.\n\nYou cite.\n\nBe brief.")
    assert [role for role, _ in roles(network.body(0))] == [
        "system",
        "user",
        "user",
        "assistant",
        "tool",
        "user",
        "user",
    ]
    alternating = [
        system,
        ("user", "go\n\nin the garden"),
        ("assistant", "a call"),
        ("tool", "noon"),
        ("assistant", "[Noted.]"),
        ("user", "hurry\n\nplease"),
    ]
    assert [roles(network.body(index)) for index in (1, 2)] == [alternating] * 2


async def test_a_conversation_that_begins_with_the_assistant_gets_a_user_message_first() -> None:
    """Compaction may leave such a conversation."""
    refusal = refused("Conversation roles must alternate user/assistant/user/assistant/...")
    messages = (Message.of("assistant", "As I said."), Message.of("assistant", "Go on?"), Message.of("user", "yes"))
    _, _, network = await complete_request(
        "ollama", refusal, text_response("openai"), request=a_request(messages=messages)
    )
    begun, reply, yes = roles(network.body())
    assert (begun[0], reply, yes) == ("user", ("assistant", "As I said.\n\nGo on?"), ("user", "yes"))


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, "System role not supported"),
        (500, "Jinja Exception: System role not supported"),
        (400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
        (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
        (400, "invalid role: 'system'"),
    ],
)
async def test_a_template_without_system_messages_gets_the_instructions_with_the_task(
    status: int, refusal: str
) -> None:
    network = Network(
        [http.Response(status, json={"error": {"message": refusal}}), text_response("openai"), text_response("openai")]
    )
    model = provider("openai-compatible", network)
    for _ in range(2):
        await model.complete(a_request(system=("You help.", "You cite.")), lambda text: None)
    await model.close()
    assert [roles(network.body(index)) for index in (1, 2)] == [[("user", "You help.\n\nYou cite.\n\nhello")]] * 2


async def test_a_refusal_is_read_to_its_end() -> None:
    """Gateways put the useful sentence after a long preamble."""
    refusal = "The upstream provider answered with an error. " * 20 + "Unsupported parameter: 'temperature'"
    _, _, network = await complete_request(
        "openai", refused(refusal), text_response("openai"), request=a_request(settings=ModelSettings(temperature=1.0))
    )
    assert "temperature" not in network.body()


async def test_a_change_that_did_not_help_is_forgotten() -> None:
    """Otherwise a refusal for another reason would remove a field that the model accepts from later calls."""
    network = Network([refused("Unsupported: temperature"), refused("the model is confused"), text_response("openai")])
    model = provider("openai", network)
    with pytest.raises(ModelError):
        await model.complete(a_request(settings=ModelSettings(temperature=1.0)), lambda text: None)
    await model.complete(a_request(settings=ModelSettings(temperature=1.0)), lambda text: None)
    await model.close()
    assert ["temperature" in network.body(index) for index in range(3)] == [True, False, True]
