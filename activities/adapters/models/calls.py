"""Tool calls as models write them: arguments parsed or kept as malformed, ids made unique."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from json import JSONDecoder, dumps
from typing import Any, cast

from pydantic_core import from_json, to_json

from orga.activities.adapters.models.object_text import ObjectText
from orga.workflows.types.json_text import stand_once
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.text import clean_json, clean_text

MAX_NAME_CHARS = 200
MAX_ID_CHARS = 200
MAX_MALFORMED_CHARS = 10_000

_MAX_REPEATED = 8
"""JSON values that the arguments of one call are searched for."""

_DECODER = JSONDecoder()


@dataclass
class OpenCall:
    """A call that is still streaming in."""

    index: int | None = None
    """The provider's own number for it."""
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    _text: ObjectText = field(default_factory=ObjectText)
    _read: int = 0

    def is_whole(self) -> bool:
        """Tell whether its arguments are written out: an object that is closed."""
        self._text.add(self.arguments[self._read :])
        self._read = len(self.arguments)
        return self._text.is_whole


def finished_calls(calls: Iterable[OpenCall], earlier: Iterable[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of a reply, each under an id that neither it nor the conversation has used before.

    A missing, repeated or overlong id is replaced by the first free of `call_1`, `call_2`, ...
    """
    calls = list(calls)
    taken = {call.call_id for message in earlier for call in message.calls}
    reserved = taken | {call.call_id for call in calls}
    finished: list[ToolCall] = []
    for call in calls:
        call_id = clean_text(call.call_id)
        if not 0 < len(call_id) <= MAX_ID_CHARS or call_id in taken:
            call_id = next(name for n in count(1) if (name := f"call_{n}") not in reserved)
        taken.add(call_id)
        reserved.add(call_id)
        finished.append(tool_call(call_id, call.name, "".join(call.arguments)))
    return tuple(finished)


def tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    """Return the call with its arguments parsed; no text at all means no arguments."""
    fields: dict[str, Any] = {"call_id": call_id, "name": clean_text(name)[:MAX_NAME_CHARS]}
    text = clean_text(arguments)
    parsed = _object(text) if text.strip() else {}
    if parsed is None:
        parsed = _repeated_object(text)
    if parsed is None:
        fields["malformed"] = text[:MAX_MALFORMED_CHARS]
    elif parsed:
        fields["arguments"] = parsed
    return ToolCall(**fields)


def _repeated_object(text: str) -> dict[str, Any] | None:
    """Return the one object of a text that also holds placeholders (`{}`, `[]`, `null`), or holds that object twice.

    Some servers open a call with a placeholder before they send the real object, others repeat the whole object. A
    text with different objects is refused: nobody can know which of them the model meant.
    """
    found: dict[str, str] = {}
    rest = text.strip()
    for _ in range(_MAX_REPEATED):
        try:
            value, end = _DECODER.raw_decode(rest)
            if value not in ({}, [], None):
                found[dumps(value, sort_keys=True)] = rest[:end]
        except (ValueError, RecursionError):
            return None
        rest = rest[end:].strip()
        if not rest:
            break
    if rest or len(found) > 1:
        return None
    return _object(found.popitem()[1] if found else "{}") if "{" in text else None


def _object(text: str) -> dict[str, Any] | None:
    """Parse a JSON object that can be written again: a number as large as 1e999 reads as infinity, which can't.

    One with a key twice is none: the last would be judged and carried out, and a person may have read the first.
    """
    try:
        parsed = from_json(text, allow_inf_nan=False)
        from_json(to_json(parsed, inf_nan_mode="constants"), allow_inf_nan=False)
    except ValueError:
        return None
    is_fit = isinstance(parsed, dict) and stand_once(text)
    return cast("dict[str, Any]", clean_json(parsed)) if is_fit else None
