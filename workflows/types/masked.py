"""A tool result without its text: one line that names the tool and how much was there."""

import re

from workflows.types.messages import Message

MAX_NAME_CHARS = 100

_MASKED = re.compile(r"\[Result of .* left out: [\d,]+ bytes\]")


def masked(message: Message) -> Message:
    """Return the message with a placeholder for a tool's result; a text that is no longer than that stays as it is.

    A masked message stays as it is, too, so that it goes on naming the size of the original.
    """
    if message.role != "tool" or _MASKED.fullmatch(message.text):
        return message
    size = _bytes(message.text)
    placeholder = f"[Result of {_name(message.tool)} left out: {size:,} bytes]"
    fields = {"text": placeholder, "ours": (len(placeholder), 0)}
    return message.model_copy(update=fields) if _bytes(placeholder) < size else message


def _name(tool: str | None) -> str:
    """Return the tool's name on one line: what a model called may be no tool at all."""
    return " ".join((tool or "").split())[:MAX_NAME_CHARS] or "tool"


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
