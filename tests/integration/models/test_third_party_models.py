"""Both protocols with a third-party server: text, parallel calls, results, failures."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from orga.activities.adapters.models.kept_fields import block_part
from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.ports import ModelError, ModelProvider, ModelRequest
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.parts.aimock import Aimock, running_aimock

WEATHER = ToolSpec(
    name="get_weather",
    description="The weather of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TEXT = "Grüß dich 😀, all is well here and there."
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "input_tokens": 11, "output_tokens": 7}
CITIES = [
    {"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "call_oslo"},
    {"name": "get_weather", "arguments": {"city": "Rome"}, "id": "call_rome"},
]


def replies(message: str, response: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"match": {"userMessage": message}, "response": response} | fields


FIXTURES = [
    replies("say hello", {"content": TEXT, "usage": USAGE}, chunkSize=3),
    {
        "match": {"userMessage": "compare the weather", "hasToolResult": False},
        "response": {"content": "Let me look.", "toolCalls": CITIES},
    },
    {
        "match": {"userMessage": "compare the weather", "hasToolResult": True},
        "response": {"content": "Rome is warmer."},
    },
    {
        "match": {"userMessage": "think first", "hasToolResult": False},
        "response": {"toolCalls": CITIES[:1], "reasoning": "hm", "reasoningSignature": "signed"},
    },
    {"match": {"userMessage": "think first", "hasToolResult": True}, "response": {"content": "Thought."}},
    replies("say too much", {"content": "too mu", "finishReason": "length"}),
    replies(
        "too fast", {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429, "retryAfter": 7}
    ),
    replies("break", {"error": {"message": "oops", "type": "server_error"}, "status": 500}),
    replies("overload", {"error": {"message": "busy", "type": "overloaded_error"}, "status": 529}),
    replies("cut", {"content": "a long text that is cut off"}, chunkSize=4, truncateAfterChunks=2, latency=20),
    replies("garble", {"content": "x"}, chaos={"malformedRate": 1}),
    replies("hang up", {"content": "x"}, chaos={"disconnectRate": 1}),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Aimock]:
    with running_aimock(FIXTURES) as aimock:
        yield aimock


@pytest.fixture(params=["openai", "anthropic", "openrouter", "ollama"])
async def model(request: pytest.FixtureRequest, server: Aimock) -> AsyncIterator[tuple[ModelProvider, str]]:
    """Yield each protocol's provider, with a model name unique to this test, to find its requests by."""
    registry = ModelRegistry(server.environment)
    yield registry.resolve(f"{request.param}:{request.param}-{request.node.name}")
    await registry.close()


async def reply_and_pieces(model: tuple[ModelProvider, str], *messages: Message) -> tuple[Reply, list[str]]:
    pieces: list[str] = []
    provider, name = model
    request = ModelRequest(
        model=name,
        system=("You are brief.",),
        messages=messages,
        tools=(WEATHER,),
        settings=ModelSettings(temperature=0.0),
    )
    return await provider.complete(request, pieces.append), pieces


def user_message(text: str) -> Message:
    return Message.of("user", text)


def results(reply: Reply) -> list[Message]:
    return [
        Message.of_result(call_id=call.call_id, tool=call.name, text=f"sunny in {call.arguments['city']}")
        for call in reply.calls
    ]


async def test_text_streams(model: tuple[ModelProvider, str]) -> None:
    reply, pieces = await reply_and_pieces(model, user_message("say hello"))
    assert reply.text == TEXT == "".join(pieces)
    assert len(pieces) > 5
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.finish) == (11, 7, "stop")


async def test_parallel_calls_and_their_results(model: tuple[ModelProvider, str], server: Aimock) -> None:
    task = user_message("compare the weather")
    reply, _ = await reply_and_pieces(model, task)
    assert [(c.call_id, c.name, c.arguments) for c in reply.calls] == [
        ("call_oslo", "get_weather", {"city": "Oslo"}),
        ("call_rome", "get_weather", {"city": "Rome"}),
    ]
    assert (reply.text, reply.finish) == ("Let me look.", "tool_calls")

    answer, _ = await reply_and_pieces(model, task, reply.message(), *results(reply))
    assert (answer.text, answer.finish) == ("Rome is warmer.", "stop")

    recorded = await server.requests(model[1])
    assert len(recorded) == 2
    for body in recorded:
        calls, answered = calls_and_results(body)
        assert calls == answered
    assert calls_and_results(recorded[1])[0] == ["call_oslo", "call_rome"]


async def test_thinking_is_returned_with_its_calls(server: Aimock) -> None:
    registry = ModelRegistry({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url})
    model = registry.resolve("anthropic:claude-that-thinks")
    task = user_message("think first")
    reply, _ = await reply_and_pieces(model, task)
    signed = block_part({"type": "thinking", "thinking": "hm", "signature": "signed"})
    assert reply.blocks == (signed,)
    answer, _ = await reply_and_pieces(model, task, reply.message(), *results(reply))
    await registry.close()
    assert answer.text == "Thought."


async def test_a_reply_truncated_at_its_limit(model: tuple[ModelProvider, str]) -> None:
    reply, _ = await reply_and_pieces(model, user_message("say too much"))
    assert (reply.text, reply.finish) == ("too mu", "length")


@pytest.mark.parametrize(
    ("task", "kind", "retryable", "wait"),
    [
        pytest.param("too fast", "RateLimited", True, 7.0, id="429 with its wait"),
        pytest.param("break", "ServerError", True, None, id="500"),
        pytest.param("overload", "Overloaded", True, None, id="529"),
        pytest.param("cut", "BadStream", True, None, id="a truncated stream"),
        pytest.param("garble", "BadStream", True, None, id="malformed JSON"),
        pytest.param("hang up", "ConnectionFailed", True, None, id="a dropped connection"),
        pytest.param("something nobody expects", "ModelNotFound", False, None, id="404"),
    ],
)
async def test_failures(
    model: tuple[ModelProvider, str], task: str, kind: str, retryable: bool, wait: float | None
) -> None:
    with pytest.raises(ModelError) as caught:
        await reply_and_pieces(model, user_message(task))
    assert (caught.value.kind, caught.value.retryable, caught.value.retry_after_s) == (kind, retryable, wait)


def calls_and_results(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the ids of the calls and of the results in a recorded request of either protocol."""
    calls: list[str] = []
    answered: list[str] = []
    for message in body["messages"]:
        calls += [call["id"] for call in message.get("tool_calls") or ()]
        answered += [message["tool_call_id"]] if message["role"] == "tool" else []
        blocks: list[dict[str, Any]] = message["content"] if isinstance(message["content"], list) else []
        calls += [block["id"] for block in blocks if block["type"] == "tool_use"]
        answered += [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    return calls, answered
