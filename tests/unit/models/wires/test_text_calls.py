"""Models without native tools: tools are described in the instructions, and calls are read from the text."""

import json
from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models import streaming
from orga.activities.adapters.models.text_calls import with_calls_of_text, with_tagged_calls, without_tagged_thinking
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.parts import ThinkingPart, ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import Network, a_request, chunk, complete_request, provider, stream_response

READ = ToolSpec(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
CALL = '{"action": "call_tool", "tool": "read_file", "arguments": {"path": "a.txt"}}'
PAST = (
    Message.of("user", "What is in a.txt?"),
    Message.of("assistant", "I look.", (ToolCall(call_id="call_1", name="read_file", arguments={"path": "a.txt"}),)),
    Message.of("user", "Be quick."),
    Message.of_result(call_id="call_1", tool="read_file", text="42"),
)


def asked(**fields: Any) -> ModelRequest:
    return a_request(**({"system": ("Be brief.",), "tools": (READ,)} | fields))


def stream_of(text: str) -> http.Response:
    return stream_response(chunk(content=text), chunk("stop"), "[DONE]")


def calls_of(text: str, *messages: Message) -> list[tuple[str, str, Any]]:
    reply = with_calls_of_text(Reply.of(text=text), asked(messages=messages))
    return [(call.call_id, call.name, call.malformed or call.arguments) for call in reply.calls]


REFUSALS = {
    "Ollama": (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
    "vLLM": (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    "llama.cpp": (500, "tools param requires --jinja flag"),
    "OpenRouter": (404, "No endpoints found that support tool use. To learn more about provider routing, visit: x"),
    "Groq": (400, "`tool calling` is not supported with this model"),
    "Perplexity": (400, "Tool calling is not supported for this model"),
    "DeepInfra": (400, "Model x does not support function calling"),
    "Bedrock": (400, "This model doesn't support tool use in streaming mode."),
    "LiteLLM": (400, "litellm.UnsupportedParamsError: ollama does not support parameters: ['tools'], for model=x"),
    "others": (422, "Extra inputs are not permitted: unknown field `tools`"),
}


@pytest.mark.parametrize(("status", "why"), REFUSALS.values(), ids=REFUSALS)
async def test_a_model_that_refuses_tools_gets_them_in_its_instructions(status: int, why: str) -> None:
    refusal = http.Response(status, json={"error": {"message": why}})
    reply, _, network = await complete_request("ollama", refusal, stream_of(CALL), request=asked(messages=PAST))

    assert [(call.call_id, call.name, call.arguments) for call in reply.calls] == [
        ("call_2", "read_file", {"path": "a.txt"})
    ]
    assert (reply.finish, reply.text) == ("tool_calls", "")
    body = network.body()
    assert not {"tools", "tool_choice"} & body.keys()
    instructions, *rest = body["messages"]
    assert "Be brief." in instructions["content"]
    assert '- read_file: Read a file.\n  {"type":"object"' in instructions["content"]
    assert [(each["role"], each["content"]) for each in rest] == [
        ("user", "What is in a.txt?"),
        ("assistant", 'I look.\n{"action":"call_tool","tool":"read_file","arguments":{"path":"a.txt"}}'),
        ("user", "Result of read_file:\n42"),
        ("user", "Be quick."),
    ]


@pytest.mark.parametrize(
    "why", ["tool read_file: does not support the keyword `pattern`", "Invalid schema for function 'read_file'"]
)
async def test_a_refusal_of_one_tool_is_none_of_all(why: str) -> None:
    refusal = http.Response(400, json={"error": {"message": why}})
    _, _, network = await complete_request("ollama", refusal, stream_of("fine"), request=asked())
    assert "tools" in network.body()


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        pytest.param(CALL, {"path": "a.txt"}, id="alone"),
        pytest.param(f"I look.\n{CALL}", {"path": "a.txt"}, id="after a text"),
        pytest.param(f"```json\n{CALL}\n```", {"path": "a.txt"}, id="in a fence"),
        pytest.param(f"{CALL}\nResult of read_file:\n7\n{CALL}", {"path": "a.txt"}, id="with an invented result"),
        pytest.param(
            '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.txt"}}\n</tool_call>',
            {"path": "a.txt"},
            id="as Hermes and Qwen write it",
        ),
        pytest.param(
            '{"name": "read_file", "arguments": {"path": "a.txt"}}', {"path": "a.txt"}, id="without an action"
        ),
        pytest.param(
            '{"action": "call_tool", "tool": "read_file", "arguments": "{\\"path\\": \\"a.txt\\"}"}',
            {"path": "a.txt"},
            id="arguments as text",
        ),
        pytest.param('{"action": "call_tool", "tool": "read_file"}', {}, id="without arguments"),
    ],
)
def test_a_call_is_read_from_the_text(text: str, arguments: dict[str, Any]) -> None:
    assert calls_of(text) == [("call_1", "read_file", arguments)]


def test_calls_that_follow_one_another_are_all_read() -> None:
    other = CALL.replace("a.txt", "b.txt")
    expected = [("call_1", "read_file", {"path": "a.txt"}), ("call_2", "read_file", {"path": "b.txt"})]
    assert calls_of(f"{CALL}\n{other}") == expected
    tagged = [f"<tool_call>\n{each}\n</tool_call>" for each in (CALL, other)]
    assert calls_of("\n".join(tagged)) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"action": "call_tool", "tool": "read_file", "arguments": {"path": "a', id="cut"),
        pytest.param(
            '{"action": "call_tool", "tool": "read_file", "arguments": {"path": "a.txt", "path": "b"}}',
            id="a key twice",
        ),
        pytest.param('{"action": "call_tool", "tool": "read_file", "arguments": ["a.txt"]}', id="a list of arguments"),
        pytest.param('<tool_call>\n{"name": "read_file", arguments: \'a\'}\n</tool_call>', id="no JSON"),
    ],
)
def test_a_broken_call_is_malformed_and_does_not_run(text: str) -> None:
    [(_, name, malformed)] = calls_of(text)
    assert name == "read_file"
    assert isinstance(malformed, str)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("The file holds 42.", id="plain text"),
        pytest.param('{"size": 3, "name": "box"}', id="data"),
        pytest.param(f"To read it, one would write {CALL} in a reply.", id="a call within a sentence"),
        pytest.param('{"name": "delete_all", "arguments": {}}', id="an unknown tool without an action"),
        pytest.param("{\n" * 50_000, id="many beginnings"),
        pytest.param("\n" * 500_000 + "x", id="many empty lines"),
        pytest.param("<tool_call>" + "\n" * 500_000 + "x", id="many empty lines after a tag"),
        pytest.param(("\n" + " " * 1_000) * 500 + "x", id="many spaces"),
    ],
)
def test_other_texts_contain_no_call(text: str) -> None:
    reply = Reply.of(text=text)
    assert with_calls_of_text(reply, asked()) is reply


def test_an_answer_as_an_action_is_its_text() -> None:
    assert with_calls_of_text(Reply.of(text='{"action": "answer", "text": "42"}'), asked()).text == "42"
    assert with_calls_of_text(Reply.of(text='{"action": "answer", "data": {"n": 4}}'), asked()).text == '{"n": 4}'


@pytest.mark.parametrize("key", ["text", "data"])
def test_half_a_character_of_an_answer_is_replaced(key: str) -> None:
    """JSON can write one, and no history can hold it."""
    reply = with_calls_of_text(Reply.of(text=f'{{"action": "answer", "{key}": "4\\ud800"}}'), asked())
    assert reply.text.encode().startswith(b"4")


def test_arguments_that_are_nested_too_deeply_are_malformed() -> None:
    for depth in (200, 900, 990, 5_000):
        nested = "[" * depth + "]" * depth
        text = f'{{"action": "call_tool", "tool": "read_file", "arguments": {{"path": {nested}}}}}'
        reply = with_calls_of_text(Reply.of(text=text), asked())
        assert [call.name for call in reply.calls] == ["read_file"]
        assert reply.model_dump_json()


def test_thinking_of_a_server_that_separates_it_stays_before_the_call() -> None:
    thought = ThinkingPart(kind="thinking", format="reasoning_content", text="hm")
    reply = with_calls_of_text(Reply.of(text=f"I look.\n{CALL}", blocks=(thought,)), asked())
    assert [part.kind for part in reply.parts] == ["thinking", "text", "call"]


def test_a_reply_that_was_cut_contains_no_call() -> None:
    reply = Reply.of(text=CALL, finish="length")
    assert with_calls_of_text(reply, asked()) is reply


async def test_an_answer_with_a_schema_comes_as_a_call_of_its_tool() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    refusal = http.Response(400, json={"error": {"message": "x does not support tools"}})
    answer = stream_of('{"action": "call_tool", "tool": "final_answer", "arguments": {"n": 42}}')
    reply, _, network = await complete_request("ollama", refusal, answer, request=asked(output_schema=schema))
    assert (json.loads(reply.text), reply.calls) == ({"n": 42}, ())
    assert "Your reply has to be a call." in network.body()["messages"][0]["content"]


async def test_the_refusal_is_remembered() -> None:
    refusal = http.Response(400, json={"error": {"message": "x does not support tools"}})
    network = Network([refusal, stream_of(CALL), stream_of(CALL), stream_of(CALL)])
    model = provider("ollama", network)
    for _ in range(3):
        await model.complete(asked(), lambda piece: None)
    await model.close()
    assert len(network.requests) == 4


async def test_a_lesson_expires_because_a_server_may_be_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "LESSON_S", 0.0)
    refusal = http.Response(400, json={"error": {"message": "x does not support tools"}})
    network = Network([refusal, stream_of(CALL), stream_of("fine")])
    model = provider("ollama", network)
    for _ in range(2):
        await model.complete(asked(), lambda piece: None)
    await model.close()
    assert ["tools" in network.body(index) for index in range(3)] == [True, False, True]


HERMES = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.txt"}}\n</tool_call>'


async def test_a_call_that_a_server_left_in_the_text_is_read() -> None:
    """The server accepted the tools, but has no parser for this model."""
    reply, _, _ = await complete_request(
        "openai-compatible", stream_of(f"<think>I look.</think>\n{HERMES}"), request=asked()
    )
    assert [call.arguments for call in reply.calls] == [{"path": "a.txt"}]
    assert reply.text == ""


def test_a_tag_within_an_answer_is_no_call() -> None:
    reply = Reply.of(text=f"Qwen writes {HERMES}")
    assert with_tagged_calls(reply, asked()) is reply


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>\nhm\n</think>\n\n42", "42"),
        ("hm, so\n</think>\n\n42", "42"),
        ("<thinking>hm</thinking>42", "42"),
        ("<think>never ends", ""),
    ],
)
def test_thinking_in_the_text_is_no_part_of_the_answer(text: str, rest: str) -> None:
    reply = without_tagged_thinking(Reply.of(text=text, usage=Usage(input_tokens=5, output_tokens=20)))
    assert reply.text == rest
    assert 0 < reply.usage.thinking_tokens <= 20


@pytest.mark.parametrize("text", ["I think so.", "The tag <think> begins it, and </think> ends it."])
def test_a_text_about_thinking_stays(text: str) -> None:
    reply = Reply.of(text=text)
    assert without_tagged_thinking(reply) is reply
