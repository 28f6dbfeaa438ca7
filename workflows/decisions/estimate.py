"""How large a message is, in tokens and bytes, without a tokenizer."""

from pydantic_core import to_json

from workflows.types.context import Setup
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


def weight_of(message: Message) -> int:
    """Return the bytes that a message takes in a history, where a quote takes two and a control character six."""
    return len(message.model_dump_json(exclude_unset=True).encode())


def tokens_of(size: int) -> int:
    """Return the estimated tokens of a message of `size` bytes: 3.3 bytes a token, 7 for the frame."""
    return max(size * 10 // 33, 1) + OVERHEAD_PER_MESSAGE


def tokens_in(messages: tuple[Message, ...]) -> int:
    """Return the estimated tokens of all these messages."""
    return sum(tokens_of(size_of(message)) for message in messages)


def bytes_for(tokens: float) -> int:
    """Return the bytes of text that so many estimated tokens stand for."""
    return max(int(tokens * 33 / 10), 0)


def frame_tokens(setup: Setup) -> int:
    """Return the estimated tokens of what goes with every call: instructions, tools, the schema of the answer."""
    texts = [setup.instructions.encode("utf-8", "replace")] if setup.instructions else []
    texts += [to_json((tool.name, tool.description, tool.parameters)) for tool in setup.tools]
    texts += [to_json(setup.output_schema)] if setup.output_schema else []
    return sum(tokens_of(len(text)) for text in texts)
