"""Sizes without a tokenizer: tokens and bytes of a message, how far the estimate is off, room that is shared."""

from collections.abc import Sequence

from pydantic_core import to_json

from orga.workflows.types.context import Setup
from orga.workflows.types.messages import Message
from orga.workflows.types.state import AgentState, Conversation

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


MIN_ESTIMATE = 500
"""Below this a provider's own overhead says more than the text."""

LOWEST, HIGHEST = 0.5, 3.0

WEIGHT = 0.5
"""Of the latest reply."""


def with_frame(state: AgentState) -> AgentState:
    """Return the state with the size of instructions and tools, measured once in a run."""
    if state.setup is None or state.conversation.frame:
        return state
    return state.with_dialogue(conversation=state.conversation.with_fields(frame=frame_tokens(state.setup)))


def sent_tokens(conversation: Conversation) -> int:
    """Return the estimated tokens of a model call about this conversation."""
    return conversation.frame + conversation.tokens


def message_budget(state: AgentState) -> int:
    """Return the estimated tokens that messages may have: of the budget, what instructions and tools leave."""
    whole = int(state.config.context_token_budget / state.calibration)
    return max(whole - state.conversation.frame, 0)


def halved_budget(sent: Conversation) -> int:
    """Return what messages may have where `sent` was too long for the provider: half of the whole."""
    return max(sent_tokens(sent) // 2 - sent.frame, 0)


def with_calibration(state: AgentState, sent: Conversation, input_tokens: int) -> AgentState:
    """Return the state after a reply to `sent`, for which the provider counted `input_tokens`; 0 says nothing."""
    estimate = sent_tokens(sent)
    if estimate < MIN_ESTIMATE or input_tokens <= 0:
        return state
    measured = min(max(input_tokens / estimate, LOWEST), HIGHEST)
    smoothed = state.calibration + (measured - state.calibration) * WEIGHT
    return state.with_dialogue(calibration=round(smoothed, 4))


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return what each of these gets of the room: short ones all they need, the long ones share what is left."""
    found = [0] * len(sizes)
    left = room
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for waiting, index in zip(range(len(sizes), 0, -1), order, strict=True):
        found[index] = min(sizes[index], left // waiting)
        left -= found[index]
    return found
