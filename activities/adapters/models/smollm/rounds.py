"""Rounds: a small model that gets nowhere is seen by what it has called so far, and has to answer then."""

import re
from collections.abc import Sequence

from pydantic_core import to_json

from orga.workflows.types.messages import Message, ToolCall

IN_A_ROW, IN_ALL = 2, 3
"""Turns that brought nothing new, after which it has to answer with what it has."""
MOST = 8
"""Turns with tools for one task, whatever they brought: its window holds no more."""
_ID = "local-"
_NOTHING = re.compile(r"\s*(?:\[[A-Z][^\]\n]*\]|No (?:match|file))")


def is_going_round(messages: Sequence[Message]) -> bool:
    """Return whether the model has got nowhere on the task at hand.

    A turn brings nothing new when all its calls were made before (letter case, spaces and `./` make no other call),
    failed, found nothing, or brought a text that is known already.
    """
    results = {message.call_id: message for message in messages if message.role == "tool"}
    known, texts, fruitless = set[str](), set[str](), list[bool]()
    for message in messages:
        if message.role == "user" and not message.text.startswith("[Reply not usable]"):
            known, texts, fruitless = set[str](), set[str](), list[bool]()
        if not message.calls:
            continue
        brought = [_is_new(call, results.get(call.call_id), known, texts) for call in message.calls]
        fruitless.append(not any(brought))
    lately = fruitless[-IN_A_ROW:]
    return len(fruitless) >= MOST or sum(fruitless) >= IN_ALL or (len(lately) == IN_A_ROW and all(lately))


def next_id(messages: Sequence[Message]) -> str:
    """Return an id that no call in the conversation has."""
    return f"{_ID}{1 + max((_number(call.call_id) for message in messages for call in message.calls), default=0)}"


def _is_new(call: ToolCall, result: Message | None, known: set[str], texts: set[str]) -> bool:
    """Return whether a call brought something, and remember both."""
    made, text = _signature(call), "" if result is None else " ".join(result.text.split())
    is_new = made not in known and text not in texts
    known.add(made)
    texts.add(text)
    return is_new and result is not None and not result.is_error and not _NOTHING.match(result.text)


def _signature(call: ToolCall) -> str:
    if call.malformed is not None:
        return f"{call.name} ?"
    plain = {name: _plain(value) for name, value in sorted(call.arguments.items())}
    return f"{call.name} {to_json(plain, inf_nan_mode='strings').decode()}"


def _plain(value: object) -> object:
    return " ".join(value.casefold().split()).removeprefix("./").strip("/\"'.") if isinstance(value, str) else value


def _number(call_id: str) -> int:
    number = call_id.removeprefix(_ID)
    return int(number) if call_id.startswith(_ID) and number.isdecimal() else 0
