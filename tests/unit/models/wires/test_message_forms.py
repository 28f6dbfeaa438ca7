"""Conversations in the forms of OpenAI and Anthropic, checked against the types of their SDKs."""

import json
from typing import Any

from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from orga.runs import anthropic_messages, openai_messages
from orga.workflows.types.messages import Message
from orga.workflows.types.parts import ToolCall
from orga.workflows.types.status import ShownMessage

_MESSAGES = [
    Message.of("system", "Be brief."),
    Message.of("user", "Where is ORD-7?"),
    Message.of("user", "And ORD-8?"),
    Message.of(
        "assistant",
        "I look.",
        (ToolCall(call_id="a", name="look", arguments={"order": 7}), ToolCall(call_id="b", name="look", malformed="{")),
    ),
    Message.of_result("sent", "a", "look"),
    Message.of_result("no JSON", "b", "look", is_error=True),
    Message.of("assistant", "", (ToolCall(call_id="c", name="look"),)),
    Message.of_result("", "c", "look"),
    Message.of("assistant", "Sent."),
]
TALK = [ShownMessage.of(message) for message in _MESSAGES]


def test_openai_accepts_the_messages() -> None:
    found = openai_messages(TALK)
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(found)
    assert [each["role"] for each in found] == [message.role for message in TALK]
    first, second = found[3]["tool_calls"]
    assert (first["id"], json.loads(first["function"]["arguments"])) == ("a", {"order": 7})
    assert second["function"]["arguments"] == "{"
    assert found[4] == {"role": "tool", "tool_call_id": "a", "content": "sent"}
    assert found[6]["content"] is None


def test_anthropic_accepts_the_messages() -> None:
    found = anthropic_messages(TALK)
    TypeAdapter(list[MessageParam]).validate_python(found["messages"])
    assert found["system"] == "Be brief."
    assert [each["role"] for each in found["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    kinds: list[Any] = [[block["type"] for block in each["content"]] for each in found["messages"]]
    assert kinds == [
        ["text"] * 2,
        ["text", "tool_use", "tool_use"],
        ["tool_result"] * 2,
        ["tool_use"],
        ["tool_result"],
        ["text"],
    ]
    assert found["messages"][2]["content"][1] == {
        "type": "tool_result",
        "tool_use_id": "b",
        "content": "no JSON",
        "is_error": True,
    }
    assert found["messages"][4]["content"][0]["content"] == "(nothing)"
    assert "system" not in anthropic_messages(TALK[1:])
