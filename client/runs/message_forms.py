"""Converts conversations to the formats of OpenAI's and Anthropic's SDKs, to continue them outside of orga."""

from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

from orga.workflows.types.status import ShownMessage

_NO_TEXT = "(nothing)"
"""Replaces an empty text, which Anthropic refuses."""


def openai_messages(conversation: Iterable[ShownMessage]) -> list[dict[str, Any]]:
    """Return a conversation as `messages` of OpenAI's Chat Completions.

    Texts from tools and strangers are included unchanged. Mark them as data before a model reads them.

    Args:
        conversation: From `AgentHandle.conversation`.
    """
    return [_openai_message(message) for message in conversation]


def _openai_message(message: ShownMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id or "", "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls: list[dict[str, Any]] = []
    for call in message.calls:
        arguments = to_json(call.arguments).decode() if call.malformed is None else call.malformed
        calls.append({"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
    return {"role": message.role, "content": message.text or None, "tool_calls": calls}


def anthropic_messages(conversation: Iterable[ShownMessage]) -> dict[str, Any]:
    """Return a conversation as `system` and `messages` of Anthropic's Messages API.

    Use it as `client.messages.create(**anthropic_messages(...), ...)`. Consecutive messages of one role are joined, as
    the API requires. Texts from tools and strangers are included unchanged, as in `openai_messages`.

    Args:
        conversation: From `AgentHandle.conversation`.
    """
    system: list[str] = []
    messages: list[dict[str, Any]] = []
    for message in conversation:
        if message.role == "system":
            system.append(message.text)
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        messages[-1]["content"] += _anthropic_blocks(message)
    return {"messages": messages, **({"system": "\n\n".join(system)} if system else {})}


def _anthropic_blocks(message: ShownMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        failed = {"is_error": True} if message.is_error else {}
        text = message.text or _NO_TEXT
        return [{"type": "tool_result", "tool_use_id": message.call_id or "", "content": text, **failed}]
    calls = [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments} for call in message.calls
    ]
    text = message.text if message.text.strip() or calls else _NO_TEXT
    return [*([{"type": "text", "text": text}] if text.strip() else []), *calls]
