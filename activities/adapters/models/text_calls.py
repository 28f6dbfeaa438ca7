"""Tools for models that cannot call them by their protocol: calls are written in text, and read from it.

Some servers refuse tools, because the model's template has no place for them or a switch is off. The instructions then
describe the tools. Other servers accept tools, but do not parse what the model writes: the reply's text then contains
`<tool_call>` and `<think>`.
"""

import re
from dataclasses import replace
from itertools import islice
from json import JSONDecoder, dumps
from math import ceil
from typing import NamedTuple

from pydantic_core import to_json

from orga.activities.adapters.models.dialect import BYTES_PER_TOKEN
from orga.activities.adapters.models.reply import OpenCall, finished_calls
from orga.activities.adapters.models.wire import with_results_first
from orga.activities.ports import ModelRequest
from orga.workflows.types.json_text import as_object, as_text, has_unique_keys
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.parts import ToolCall, usual_parts, with_text
from orga.workflows.types.text import clean_text
from orga.workflows.types.tool_calls.tools import ToolSpec

_CALL = "call_tool"
_ANSWER = "answer"

MAX_CANDIDATES = 100
"""Positions of a text that are tried as the beginning of an object."""

_BEGINNING = re.compile(r"(?:\A\s*|\n[ \t]*)(?:```\w*[ \t]*\n?[ \t]*|<tool_call>\s*)?(?=\{)")
"""The beginning of an object at the beginning of a line. The search takes linear time for any text."""

_GAP = re.compile(r"(?:\s|```\w*|</?tool_call>)*")
"""Text between two calls of a reply. Nothing is read after other text, because weak models invent results there."""

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
    later_system = [message for message in request.messages if message.role == "system"]
    others = with_results_first(message for message in request.messages if message.role != "system")
    messages = (*later_system, *map(_message_in_text, others))
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
        shown = Message.of("user", f"Result of {message.tool or 'the tool'}{failed}:\n{message.text}")
        return shown.with_media(message.media)
    if message.calls:
        return Message.of("assistant", "\n".join(filter(None, [message.text, *map(written_call, message.calls)])))
    return message.without_blocks()


def with_calls_of_text(reply: Reply, request: ModelRequest) -> Reply:
    """Return the reply with the calls that its text contains. A reply that was cut or withheld stays as it is."""
    if reply.finish not in {"stop", "tool_calls"} or reply.calls:
        return reply
    actions = _first_actions(reply.text, {tool.name for tool in request.tools})
    if not actions:
        return reply
    if actions[0].call is None:
        return reply.with_differences(parts=with_text(reply.parts, actions[0].answer))
    calls = finished_calls([action.call for action in actions if action.call], request.messages)
    before = reply.text[: actions[0].begin].rstrip()
    return reply.with_differences(parts=usual_parts(before, calls, reply.blocks), finish="tool_calls")


def with_tagged_calls(reply: Reply, request: ModelRequest) -> Reply:
    """Return the reply with the calls of a text that begins with `<tool_call>`, which its server has not parsed."""
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
    return reply.with_differences(parts=with_text(reply.parts, text[found.end() :]), usage=usage)


class _Action(NamedTuple):
    """A call or an answer, and its position in the text."""

    begin: int
    end: int
    call: OpenCall | None = None
    answer: str = ""


def _first_actions(text: str, known: set[str]) -> list[_Action]:
    """Return the first answer of a text, or the first call and those that follow it directly."""
    actions, end = list[_Action](), 0
    for beginning in islice(_BEGINNING.finditer(text), MAX_CANDIDATES):
        if beginning.end() < end or not (action := _read_action(text, *beginning.span(), known)):
            continue
        if actions and (action.call is None or not _GAP.fullmatch(text, end, action.begin)):
            break
        actions.append(action)
        end = action.end
        if action.call is None:
            break
    return actions


_DECODER = JSONDecoder()


def _read_action(text: str, begin: int, start: int, known: set[str]) -> _Action | None:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _broken_call(text, begin, start)
    action = as_object(value)
    name = as_text(action.get("tool")) or as_text(action.get("name"))
    kind = action.get("action")
    if kind == _ANSWER:
        return _Action(begin, end, answer=clean_text(_as_written(action.get("text", action.get("data")), "")))
    is_tagged = _TAG in text[begin:start]
    if not name or not (kind == _CALL or is_tagged or (name in known and "arguments" in action)):
        return None
    whole = text[start:end]  # sent as the arguments if they are too deep or repeat a key, so that the call is malformed
    arguments = action.get("arguments", action.get("parameters", {}))
    written = _as_written(arguments, whole) if has_unique_keys(whole) else whole
    return _Action(begin, end, OpenCall(name=name, arguments=[written]))


def _as_written(value: object, instead: str) -> str:
    """Return a text as it is, and any other value as JSON, or `instead` if it is nested too deeply."""
    try:
        return value if isinstance(value, str) else dumps(value, ensure_ascii=False)
    except RecursionError:
        return instead


def _broken_call(text: str, begin: int, start: int) -> _Action | None:
    """Return a malformed call, which the model is asked to correct. None if the text does not look like a call."""
    head = text[start : start + 400]
    name = _NAME.search(head)
    if name is None or not (_TAG in text[begin:start] or f'"{_CALL}"' in head):
        return None
    return _Action(begin, len(text), OpenCall(name=name[1], arguments=[text[start:]]))
