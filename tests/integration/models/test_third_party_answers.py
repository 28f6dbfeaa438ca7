"""Final answers that fit a schema, from a third-party server: natively, by a forced call, and repaired."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.ports import ModelProvider, ModelRequest
from orga.workflows.types.json_text import parsed_answer_json
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.named import Named
from tests.support.parts.aimock import Aimock, running_aimock
from tests.support.runs.loop import a_loop

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
OPEN = SCHEMA | {"additionalProperties": True}
"""This server does not know where Anthropic's protocol puts closed schemas."""

WEATHER = ToolSpec(name="get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
ANSWER = {"city": "Rome", "degrees": 31}
CALLED = {"name": "final_answer", "arguments": ANSWER, "id": "call_answer"}
LOOKED = {"name": "get_weather", "arguments": {"city": "Rome"}, "id": "call_rome"}
TASK = "where is it warmest"
REPAIRED = "answer in a hurry"
FIXTURES = [
    {
        "match": {"userMessage": TASK, "hasToolResult": False, "toolName": "get_weather"},
        "response": {"toolCalls": [LOOKED]},
    },
    {
        "match": {"userMessage": TASK, "responseFormat": "json_schema"},
        "response": {"content": '{"city": "Rome", "degrees": 31}'},
    },
    {"match": {"userMessage": TASK, "toolName": "final_answer"}, "response": {"toolCalls": [CALLED]}},
    {"match": {"userMessage": TASK}, "response": {"content": '{"city": "Rome", "degrees": 31}'}},
    {
        "match": {"userMessage": REPAIRED, "toolName": "final_answer"},
        "response": {"toolCalls": [CALLED | {"arguments": {"city": "Rome"}}]},
    },
    {"match": {"userMessage": REPAIRED}, "response": {"content": '{"city": "Rome"}'}},
    {
        "match": {"userMessage": "does not fit the schema", "toolName": "final_answer"},
        "response": {"toolCalls": [CALLED]},
    },
    {"match": {"userMessage": "does not fit the schema"}, "response": {"content": '{"city": "Rome", "degrees": 31}'}},
]
"""The text replies are for clients that use the protocol's own schema mode instead of a tool."""


@pytest.fixture(scope="module")
def server() -> Iterator[Aimock]:
    with running_aimock(FIXTURES) as aimock:
        yield aimock


@pytest.fixture(params=["openai", "anthropic", "openrouter", "ollama"])
async def model(request: pytest.FixtureRequest, server: Aimock) -> AsyncIterator[tuple[ModelProvider, str]]:
    registry = ModelRegistry(server.environment)
    yield registry.resolve(f"{request.param}:{request.param}-{request.node.name}")
    await registry.close()


async def reply_of(model: tuple[ModelProvider, str], tools: tuple[ToolSpec, ...], *messages: Message) -> Reply:
    provider, name = model
    schema = OPEN if name.startswith("anthropic-") else SCHEMA
    request = ModelRequest(
        model=name, messages=messages, tools=tools, output_schema=schema, settings=ModelSettings(temperature=0.0)
    )
    return await provider.complete(request, lambda piece: None)


async def test_the_answer_fits_the_schema(model: tuple[ModelProvider, str]) -> None:
    reply = await reply_of(model, (), Message.of("user", TASK))
    assert (parsed_answer_json(reply.text), reply.calls, reply.finish) == (ANSWER, (), "stop")
    assert argument_errors(SCHEMA, parsed_answer_json(reply.text)) == []


async def test_tools_are_called_before_the_answer(model: tuple[ModelProvider, str], server: Aimock) -> None:
    task = Message.of("user", TASK)
    reply = await reply_of(model, (WEATHER,), task)
    assert [call.name for call in reply.calls] == ["get_weather"]
    result = Message.of_result(call_id="call_rome", tool="get_weather", text="31")

    answer = await reply_of(model, (WEATHER,), task, reply.message(), result)

    assert (parsed_answer_json(answer.text), answer.calls) == (ANSWER, ())
    (_, body) = await server.requests(model[1])
    offered = [tool.get("name") or tool["function"]["name"] for tool in body["tools"]]
    assert offered == (["get_weather"] if model[1].startswith("openai-") else ["get_weather", "final_answer"])


async def test_an_invalid_answer_can_be_given_again(model: tuple[ModelProvider, str]) -> None:
    """The arguments of a forced call are in the conversation as text, which every provider accepts."""
    earlier = [
        Message.of("user", TASK),
        Message.of("assistant", '{"city":"Rome"}'),
        Message.of("user", f"[Reply not usable] $: degrees is missing: {TASK}"),
    ]
    reply = await reply_of(model, (), *earlier)
    assert parsed_answer_json(reply.text) == ANSWER


async def test_a_run_repairs_an_invalid_answer(client: Client, model: tuple[ModelProvider, str]) -> None:
    async with a_loop(client, Named(*model)) as loop:
        schema = OPEN if model[1].startswith("anthropic-") else SCHEMA
        ran = await loop.run({"task": REPAIRED, "output_schema": schema})

    assert (ran.result.data, ran.result.termination.reason, ran.result.iterations) == (ANSWER, "completed", 2)
