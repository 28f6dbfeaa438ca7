"""The order in which every provider takes messages, and the names it takes."""

import hashlib
import re
from collections.abc import Iterable
from itertools import groupby

from orga.workflows.types.messages import Message

BEGINNING = "[The beginning of this conversation was left out.]"
"""Of the user, where compaction left a conversation to begin with the assistant, which many refuse."""

_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")


def results_first(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with the tool results of a turn right behind the calls that they answer.

    Guidance that arrived between two results moves behind both: a provider refuses a call without its result.
    """
    ordered: list[Message] = []
    for _, turn in groupby(messages, key=lambda message: message.role == "assistant"):
        ordered.extend(sorted(turn, key=lambda message: message.role not in {"assistant", "tool"}))
    return ordered


def wire_name(name: str) -> str:
    """Return a name that providers take back: a model may have called what can't exist."""
    return _REFUSED.sub("_", name)[:64] or "unknown"


def wire_id(call_id: str | None) -> str:
    """Return a call id that every provider takes, the same one for the same call."""
    given = call_id or ""
    if given and len(given) <= 64 and not _REFUSED.search(given):
        return given
    return f"call_{hashlib.sha256(given.encode()).hexdigest()[:24]}"
