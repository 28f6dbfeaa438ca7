"""Messages as a model gets them: what tools and strangers said stands between marks."""

from pydantic_core import to_json

from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.tools import ToolSpec
from orga.workflows.types.untrusted import delimited

SOURCE_CHARS = 120


def as_sent(messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> tuple[Message, ...]:
    """Return the messages as a model gets them: of tool messages all is delimited that is not the loop's own word.

    So is a summary: a model wrote it, of what tools had said.

    Done for each model call and never recorded: what a history holds is the text itself.
    """
    calls = {call.call_id: call for message in messages for call in message.calls}
    specs = {spec.name: spec for spec in tools}
    return tuple(_as_sent(message, calls, specs) for message in messages)


def _as_sent(message: Message, calls: dict[str, ToolCall], specs: dict[str, ToolSpec]) -> Message:
    if message.summary:
        header, _, text = message.text.partition("\n")
        return message.with_text(f"{header}\n{delimited(text, 'summary of earlier messages')}")
    if message.role != "tool":
        return message
    call = calls.get(message.call_id or "") or ToolCall(call_id="", name=message.tool or "tool")
    return message.with_text(as_data(message, source_of(call, specs.get(call.name))))


def as_data(message: Message, source: str) -> str:
    """Return the text of a tool message with the tool's own part of it delimited."""
    head, tail = message.ours
    end = max(len(message.text) - tail, 0)
    before, data, after = message.text[:head], message.text[head:end], message.text[max(head, end) :]
    if (head or tail) and not data:
        return message.text
    title = f"{'failure' if message.is_error else 'result'} of {source}"
    return f"{before}{delimited(data, title, message.call_id or '')}{after}"


def source_of(call: ToolCall, spec: ToolSpec | None) -> str:
    """Return the tool and its main argument on one line: `read_file "docs/a.md"`."""
    name = spec.main_argument if spec else None
    value = call.arguments.get(name) if name else next(iter(call.arguments.values()), None)
    shown = "" if value is None else f" {to_json(value, inf_nan_mode='strings').decode()}"
    line = f"{call.name}{shown}"[: SOURCE_CHARS + 1]
    if not line.isprintable():
        line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= SOURCE_CHARS else line[: SOURCE_CHARS - 1] + "…"
