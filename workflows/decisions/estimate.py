"""How large a message is, in tokens and bytes, without a tokenizer."""

from pydantic_core import to_json

from workflows.types.messages import Message

OVERHEAD_PER_CALL = 30
OVERHEAD_PER_MESSAGE = 7


def size_of(message: Message) -> int:
    """Return the UTF-8 bytes of everything in a message that a provider is sent."""
    size = len(message.text.encode("utf-8", "replace"))
    for call in message.calls:
        size += len(call.call_id) + len(call.name) + len(to_json(call.arguments)) + OVERHEAD_PER_CALL
    if message.blocks:
        size += len(to_json(message.blocks))
    if message.call_id is not None:
        size += len(message.call_id) + 20
    return size


def tokens_of(size: int) -> int:
    """Return the estimated tokens of a message of `size` bytes: 3.3 bytes a token, 7 for the frame."""
    return max(size * 10 // 33, 1) + OVERHEAD_PER_MESSAGE
