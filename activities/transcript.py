"""Messages as one text to read, for a model that is to sum them up."""

from pydantic_core import to_json

from orga.workflows.types.conversation import SOURCE_CHARS
from orga.workflows.types.messages import Message
from orga.workflows.types.parts import ResultPart, TextPart, ToolCall, with_placeholders
from orga.workflows.types.text import clip, delimited

MAX_PART_BYTES = 4_000
"""Of one message or one call; what is worth keeping of a longer one stands at its beginning."""


def transcript(messages: tuple[Message, ...], salt: str = "") -> str:
    """Return what was said, called and returned, in order, each part between two lines that it cannot forge.

    Args:
        messages: In order.
        salt: What the authors of the texts could not know.
    """
    return "\n\n".join(part for message in messages for part in _parts(message, salt))


def _parts(message: Message, salt: str) -> list[str]:
    parts: list[str] = []
    for part in with_placeholders(message.parts):
        if isinstance(part, ToolCall):
            parts.append(_part(f"call of {part.name} by the assistant", to_json(part.arguments).decode(), salt))
        elif isinstance(part, (TextPart, ResultPart)) and part.text:
            parts.append(_part(_speaker(message), part.text, salt))
    return parts


def _part(title: str, text: str, salt: str) -> str:
    line = "".join(c if c.isprintable() else "?" for c in title[:SOURCE_CHARS])
    return delimited(clip(text, MAX_PART_BYTES), line, salt)


def _speaker(message: Message) -> str:
    if message.summary:
        return "summary of what came before"
    if message.role == "tool":
        return f"{'failure' if message.is_error else 'result'} of {message.tool or 'tool'}"
    return message.role
