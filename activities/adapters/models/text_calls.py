"""Tools for models that cannot call them by their protocol: calls are written in text, and read from it.

Some servers refuse tools, because the model's template has no place for them or a switch is off. The tools are then
described in the instructions. Others take tools, but pass on what the model writes: `<tool_call>` and `<think>` then
stand in the reply's text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from json import JSONDecoder, dumps
from math import ceil
from typing import Any, cast

from pydantic_core import to_json

from orga.activities.adapters.models.dialect import BYTES_PER_TOKEN
from orga.activities.adapters.models.reply import OpenCall, finished_calls
from orga.activities.adapters.models.wire import with_results_first
from orga.activities.ports import ModelRequest
from orga.workflows.types.json_text import as_object, as_text, has_unique_keys
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.parts import ToolCall, text_part, with_text, without_blocks
from orga.workflows.types.tool_calls.tools import ToolSpec

_CALL = "call_tool"
_ANSWER = "answer"

MAX_CANDIDATES = 100
"""Places of a text that are tried as the beginning of an object."""

_BEGINNING = re.compile(r"(?:\A\s*|\n[ \t]*)(?:```\w*[ \t]*\n?[ \t]*|<tool_call>\s*)?(?=\{)")
"""The beginning of an object at the beginning of a line. No text makes the search take quadratic time."""

_GAP = re.compile(r"(?:\s|```\w*|</?tool_call>)*")
"""Text between two calls of a reply. After any other text nothing is read: weak models go on with invented results."""

_TAG = "<tool_call>"
_NAME = re.compile(r'"(?:tool|name)"\s*:\s*"([^"\\]{1,200})"')


def written_call(call: ToolCall) -> str:
    """Return a past call as the model would have written it."""
    return to_json({"action": _CALL, "tool": call.name, "arguments": call.arguments}).decode()


def request_in_text(request: ModelRequest) -> ModelRequest:
    """Return the request without tools and calls: instructions describe the tools, and messages contain the calls."""
    system = request.system
    if request.tools and request.tool_choice != "none":
        system = (*system, _instructions(request.tools, is_call_wanted=request.tool_choice == "any"))
    given = [message for message in request.messages if message.role == "system"]
    spoken = with_results_first(message for message in request.messages if message.role != "system")
    messages = (*given, *map(_message_in_text, spoken))
    return replace(request, system=system, messages=messages, tools=(), tool_choice="auto")


def _instructions(tools: tuple[ToolSpec, ...], *, is_call_wanted: bool) -> str:
    finish = "Your reply has to be a call." if is_call_wanted else "If no tool is needed, answer in plain text."
    described = (f"- {tool.name}: {tool.description}\n  {to_json(tool.parameters).decode()}" for tool in tools)
    return "\n".join(
        [
            "You can call tools. To do so, reply with one JSON object for each call, and with nothing after it:",
            f'{{"action": "{_CALL}", "tool": NAME, "arguments": {{...}}}}',
            f"The results come in the next message. {finish}",
            "Tools, each with the JSON Schema of its arguments:",
            *described,
        ]
    )


def _message_in_text(message: Message) -> Message:
    if message.role == "tool":
        failed = " (it failed)" if message.is_error else ""
        return Message.of("user", f"Result of {message.tool or 'the tool'}{failed}:\n{message.text}")
    if message.calls:
        return Message.of("assistant", "\n".join(filter(None, [message.text, *map(written_call, message.calls)])))
    return message.with_parts(without_blocks(message.parts)) if message.blocks else message


def with_calls_of_text(reply: Reply, request: ModelRequest) -> Reply:
    """Return the reply with the calls that its text contains. A reply that was cut or withheld stays as it is.

    Args:
        request: The request with its tools, whose calls may be in the text.
    """
    if reply.finish not in {"stop", "tool_calls"} or reply.calls:
        return reply
    text, known = reply.text, {tool.name for tool in request.tools}
    found = _Actions(text, known)
    if found.calls:
        calls = finished_calls(found.calls, request.messages)
        before = text[: found.begin].rstrip()
        return _with_parts(reply, (*((text_part(before),) if before else ()), *calls), finish="tool_calls")
    return reply if found.answer is None else _with_parts(reply, with_text(reply.parts, found.answer))


def with_tagged_calls(reply: Reply, request: ModelRequest) -> Reply:
    """Return the reply with the calls that its server has left unread: the text begins with `<tool_call>`."""
    is_unread = bool(request.tools) and not reply.calls and reply.text.lstrip().startswith(_TAG)
    return with_calls_of_text(reply, request) if is_unread else reply


_THINKING = re.compile(r"\A\s*<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)\s*", re.DOTALL)
_THINKING_END = re.compile(r"\A((?:(?!<think).)*?)</think(?:ing)?>\s*", re.DOTALL)
"""Some templates write the opening tag themselves, so that a reply has only the closing one."""


def without_tagged_thinking(reply: Reply) -> Reply:
    """Return the reply without thinking that its server has left in the text. It counts as thinking, not as text."""
    text = reply.text
    if "think" not in text or not (found := _THINKING.match(text) or _THINKING_END.match(text)):
        return reply
    usage, thought = reply.usage, ceil(len(found[1].encode()) / BYTES_PER_TOKEN)
    if not usage.thinking_tokens:
        usage = usage.with_differences(thinking_tokens=min(thought, usage.output_tokens))
    return _with_parts(reply, with_text(reply.parts, text[found.end() :])).with_differences(usage=usage)


def _with_parts(reply: Reply, parts: Any, **changed: Any) -> Reply:
    kept = reply.model_fields_set.difference({"parts", *changed})
    return Reply(parts=parts, **{name: getattr(reply, name) for name in kept}, **changed)


@dataclass(frozen=True)
class _Found:
    begin: int
    end: int
    call: OpenCall | None = None
    answer: str | None = None


class _Actions:
    """The first actions in a text: calls that follow one another, or an answer."""

    def __init__(self, text: str, known: set[str]) -> None:
        self.calls: list[OpenCall] = []
        self.begin = len(text)
        self.answer: str | None = None
        end = 0
        for found in _actions(text, known):
            if found.call is None:
                self.answer = found.answer if not self.calls else None
                break
            if self.calls and not _GAP.fullmatch(text, end, found.begin):
                break
            self.begin, end = min(self.begin, found.begin), found.end
            self.calls.append(found.call)


def _actions(text: str, known: set[str]) -> Iterator[_Found]:
    end = 0
    for count, beginning in enumerate(_BEGINNING.finditer(text)):
        if count == MAX_CANDIDATES:
            break
        start = beginning.end()
        if start < end:
            continue
        found = _read_action(text, beginning.start(), start, known)
        if found is not None:
            end = found.end
            yield found


_DECODER = JSONDecoder()


def _read_action(text: str, begin: int, start: int, known: set[str]) -> _Found | None:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _broken_call(text, begin, start)
    action = as_object(value)
    name = as_text(action.get("tool")) or as_text(action.get("name"))
    kind = action.get("action")
    if kind == _ANSWER:
        data = action.get("text", action.get("data"))
        return _Found(begin, end, answer=data if isinstance(data, str) else dumps(data, ensure_ascii=False))
    is_tagged = _TAG in text[begin:start]
    if not name or not (kind == _CALL or is_tagged or (name in known and "arguments" in action)):
        return None
    arguments = cast("object", action.get("arguments", action.get("parameters", {})))
    written = arguments if isinstance(arguments, str) else dumps(arguments, ensure_ascii=False)
    if not has_unique_keys(text[start:end]):
        written = text[start:end]  # is refused as malformed
    return _Found(begin, end, OpenCall(name=name, arguments=[written]))


def _broken_call(text: str, begin: int, start: int) -> _Found | None:
    """Return a malformed call, so that the model is told. None if the object was none of a call."""
    line = text[start : start + 400]
    name = _NAME.search(line)
    if name is None or not (_TAG in text[begin:start] or f'"{_CALL}"' in line):
        return None
    return _Found(begin, len(text), OpenCall(name=name[1], arguments=[text[start:]]))
