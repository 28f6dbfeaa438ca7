"""A provider's reply made safe for the history: unique call ids, valid text, bounded size."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, cast, get_args

from pydantic_core import from_json, to_json

from orga.workflows.types.messages import FinishReason, Message, Reply, ToolCall
from orga.workflows.types.text import clean_json, clean_text, clip_json, json_prefix

MAX_CALLS = 32
"""Calls of one reply that are taken in; the model is told of the others."""

MAX_LEFT_OUT_TOOLS = 20
MAX_LEFT_OUT_CHARS = 64
"""Tools that are named of those others, and the characters of each name."""

_BESIDE_TEXT = ("calls", "blocks", "order", "left_out", "left_out_tools")

MAX_TEXT_BYTES = 300_000
"""As JSON."""

MAX_CALLS_BYTES = 150_000
"""Blocks and arguments of all calls together, as JSON: what is sent back with each later request cannot be cut."""

MIN_CALLS_BYTES = 64_000
MIN_CALL_BYTES = 500
"""For the arguments of each call, however large those of the others are."""

TOGETHER = ", which is what the calls of this reply leave; make fewer or shorter calls at once"

BYTES_PER_TOKEN = 6
"""More than a token of any provider holds on the average."""

MAX_DEPTH = 100
"""Lists and objects inside each other; JSON that is 200 deep could be written but never be read again."""

MAX_NAME_CHARS = 200

MAX_PARTS = 1_000
"""Of a reply, in the order in which they stood: a state has to carry what they are. Beyond it no blocks are kept."""

MAX_COUNT = 10**15
"""Tokens of one call; more nobody was ever charged for."""


def calls_room(max_output_tokens: int) -> int:
    """Return the bytes that blocks and arguments of one reply may take: what a reply of so many tokens can hold."""
    return min(max(max_output_tokens * BYTES_PER_TOKEN, MIN_CALLS_BYTES), MAX_CALLS_BYTES)


def normalised(reply: Reply, earlier: Iterable[Message], room: int = MAX_CALLS_BYTES) -> Reply:
    """Return the reply as it goes to history; every call has an id that no other call of the conversation has.

    Blocks that do not fit into `room` are left out; arguments beyond it are refused as malformed rather than cut.
    """
    text = clip_json(clean_text(reply.text), MAX_TEXT_BYTES)
    blocks = _fitting_blocks(reply.blocks, room) if len(reply.order) <= MAX_PARTS else ()
    room -= len(to_json(blocks)) if blocks else 0
    taken = {call.call_id for message in earlier for call in message.calls}
    calls: list[ToolCall] = []
    for call in reply.calls[:MAX_CALLS]:
        fresh = call.with_differences(call_id=_unique(call.call_id, taken), name=_name(call.name, "unnamed"))
        taken.add(fresh.call_id)
        calls.append(_bounded(fresh, max(room, MIN_CALL_BYTES)))
        room -= len(to_json(calls[-1].arguments)) + len(to_json(calls[-1].malformed or ""))
    left_out = len(reply.calls) - len(calls) or reply.left_out
    tools = _left_out_tools(reply.calls[MAX_CALLS:]) or reply.left_out_tools
    order = reply.order if blocks else ()
    return _described(reply).with_differences(
        text=text, blocks=blocks, order=order, calls=tuple(calls), left_out=left_out, left_out_tools=tools
    )


def text_alone(reply: Reply, text: str) -> Reply:
    """Return the reply with that text, and without calls and blocks; what is not set stays so."""
    fields = {name: getattr(reply, name) for name in reply.model_fields_set - {"text", *_BESIDE_TEXT}}
    return Reply(text=text, **fields)


def _left_out_tools(calls: Sequence[ToolCall]) -> dict[str, int]:
    counts = Counter(call.name[:MAX_LEFT_OUT_CHARS] for call in calls)
    return {_name(name, "unnamed"): count for name, count in counts.most_common(MAX_LEFT_OUT_TOOLS)}


def _described(reply: Reply) -> Reply:
    """Return the reply with what an adapter says about it made sane: budgets only ever grow."""
    used, cost = reply.usage, reply.cost_usd
    return reply.with_differences(
        finish=reply.finish if reply.finish in get_args(FinishReason) else "stop",
        usage=used.with_differences(
            input_tokens=min(max(used.input_tokens, 0), MAX_COUNT),
            output_tokens=min(max(used.output_tokens, 0), MAX_COUNT),
            cached_input_tokens=min(max(used.cached_input_tokens, 0), MAX_COUNT),
        ),
        cost_usd=cost if cost is not None and isfinite(cost) and cost >= 0 else None,
        model=None if reply.model is None else _name(reply.model, "unnamed"),
    )


def _unique(call_id: str, taken: set[str]) -> str:
    wanted = _name(call_id, "call")
    found, number = wanted, 2
    while found in taken:
        suffix = f"_{number}"
        found = wanted[: MAX_NAME_CHARS - len(suffix)] + suffix
        number += 1
    return found


def _name(text: str, otherwise: str) -> str:
    """Return a name of at most so many bytes, and twice as many in a history, where a control character takes six."""
    name = clean_text(text).strip()[:MAX_NAME_CHARS].strip()
    name = name.encode()[:MAX_NAME_CHARS].decode(errors="ignore")
    return json_prefix(name, 2 * MAX_NAME_CHARS).strip() or otherwise


def _fitting_blocks(blocks: tuple[dict[str, Any], ...], max_bytes: int) -> tuple[dict[str, Any], ...]:
    if any(is_deeper(block, MAX_DEPTH) for block in blocks):
        return ()
    cleaned = tuple(clean_json(block) for block in blocks)
    text = to_json(cleaned)
    return cleaned if len(text) <= max_bytes and _can_be_read(text) else ()


def _bounded(call: ToolCall, max_bytes: int) -> ToolCall:
    if call.malformed is not None:
        return call.with_differences(arguments={}, malformed=clip_json(clean_text(call.malformed), max_bytes))
    if is_deeper(call.arguments, MAX_DEPTH):
        return call.with_differences(arguments={}, malformed=f"(nested more than {MAX_DEPTH} deep)")
    arguments = clean_json(call.arguments)
    text = to_json(arguments)
    if len(text) > max_bytes:
        return call.with_differences(arguments={}, malformed=f"(more than {max_bytes} bytes{TOGETHER})")
    if not _can_be_read(text):
        return call.with_differences(arguments={}, malformed="(a number out of range)")
    return call.with_differences(arguments=arguments)


def _can_be_read(text: bytes) -> bool:
    """Integers of more than 4,300 digits can be written, but not read."""
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def is_deeper(value: object, levels: int) -> bool:
    """Return whether lists and objects stand inside each other more than `levels` deep."""
    if isinstance(value, dict):
        inner = list(cast("dict[object, object]", value).values())
    elif isinstance(value, (list, tuple)):
        inner = cast("list[object]", value)
    else:
        return False
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inner)
