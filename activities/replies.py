"""A provider's reply made safe for the history: unique call ids, valid text, bounded size."""

from collections.abc import Iterable

from workflows.types.clipped import clip
from workflows.types.messages import Message, Reply, ToolCall
from workflows.types.text import clean_json, clean_text

MAX_CALLS = 32
"""Calls of one reply that are taken in; the model is told of the others."""

MAX_TEXT_BYTES = 500_000
MAX_ARGUMENT_BYTES = 200_000
"""All arguments of one call; larger ones are refused as malformed rather than cut."""

MAX_NAME_CHARS = 200


def normalised(reply: Reply, earlier: Iterable[Message]) -> Reply:
    """Return the reply as it goes to history; every call has an id that no other call of the conversation has."""
    taken = {call.call_id for message in earlier for call in message.calls}
    calls: list[ToolCall] = []
    for call in reply.calls[:MAX_CALLS]:
        fresh = _with_id(call, _unique(clean_text(call.call_id).strip() or "call", taken))
        taken.add(fresh.call_id)
        calls.append(_bounded(fresh))
    update: dict[str, object] = {}
    if tuple(calls) != reply.calls:
        update["calls"] = tuple(calls)
    if len(reply.calls) > MAX_CALLS:
        update["left_out"] = len(reply.calls) - MAX_CALLS
    text = clip(clean_text(reply.text), MAX_TEXT_BYTES)
    if text != reply.text:
        update["text"] = text
    return reply.model_copy(update=update) if update else reply


def _unique(call_id: str, taken: set[str]) -> str:
    if call_id not in taken:
        return call_id
    number = 2
    while f"{call_id}_{number}" in taken:
        number += 1
    return f"{call_id}_{number}"


def _with_id(call: ToolCall, call_id: str) -> ToolCall:
    call_id = call_id[:MAX_NAME_CHARS]
    return call if call.call_id == call_id else call.model_copy(update={"call_id": call_id})


def _bounded(call: ToolCall) -> ToolCall:
    update: dict[str, object] = {}
    name = clean_text(call.name).strip()[:MAX_NAME_CHARS] or "unnamed"
    if name != call.name:
        update["name"] = name
    arguments = clean_json(call.arguments)
    if arguments != call.arguments:
        update["arguments"] = arguments
    if len(call.model_dump_json(include={"arguments"}, fallback=str)) > MAX_ARGUMENT_BYTES:
        update |= {"arguments": {}, "malformed": f"(more than {MAX_ARGUMENT_BYTES} bytes)"}
    return call.model_copy(update=update) if update else call
