"""Messages as one text to read, for a model that is to sum them up."""

from pydantic_core import to_json

from workflows.types.clipped import clip
from workflows.types.messages import Message

MAX_PART_BYTES = 4_000
"""Of one message or one call; what is worth keeping of a longer one stands at its beginning."""


def transcript(messages: tuple[Message, ...]) -> str:
    """Return what was said, called and returned, in order, each part under who said it."""
    return "\n\n".join(part for message in messages for part in _parts(message))


def _parts(message: Message) -> list[str]:
    parts = [f"{_speaker(message)}:\n{clip(message.text, MAX_PART_BYTES)}"] if message.text else []
    for call in message.calls:
        parts.append(f"assistant calls {call.name}: {clip(to_json(call.arguments).decode(), MAX_PART_BYTES)}")
    return parts


def _speaker(message: Message) -> str:
    if message.summary:
        return "summary of what came before"
    if message.role == "tool":
        return f"{'failure' if message.is_error else 'result'} of {message.tool or 'tool'}"
    return message.role
