"""The conversation: its size, its growth, and its form as references for a model call.

Sizes are estimated without a tokenizer. The results of an iteration share the room that the context budget leaves.
"""

from collections.abc import Sequence
from typing import TypeVar

from pydantic_core import to_json

from orga.workflows.types.context import ContextRef, HashedMessages, MessageRef, messages_digest, short_digest
from orga.workflows.types.conversation import Conversation, Summary, is_dropped_last, latest_turn, summary_message
from orga.workflows.types.messages import Message, Ranges, Reply, shortened_message
from orga.workflows.types.parts import MediaPart, Part, ResultPart, TextPart, ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import bytes_in_json

S = TypeVar("S", bound=AgentState)

OVERHEAD_PER_CALL = 30
"""Bytes of a call in a provider's request, in addition to its texts."""
OVERHEAD_PER_RESULT = 20
"""Bytes, as for a call."""
OVERHEAD_PER_MESSAGE = 7
"""Tokens of a message's frame."""

MAX_CONVERSATION_BYTES = 1_000_000
"""Bytes. A larger conversation would not fit into one payload of 2 MB together with the rest of the state."""


def message_size(message: Message) -> int:
    """Return the UTF-8 bytes of everything in a message that a provider gets."""
    return sum(map(_part_size, message.parts))


def _part_size(part: Part) -> int:
    match part:
        case TextPart():
            return len(part.text.encode("utf-8", "replace"))
        case ToolCall():
            return len(part.call_id) + len(part.name) + len(to_json(part.arguments)) + OVERHEAD_PER_CALL
        case ResultPart():
            return len(part.text.encode("utf-8", "replace")) + len(part.call_id or "") + OVERHEAD_PER_RESULT
        case MediaPart():
            return part.text_bytes
        case _:
            return len(to_json(part))


def message_json_bytes(message: Message) -> int:
    """Return the bytes of a message as JSON in a history. A quote takes two bytes, and a control character six."""
    return len(message.model_dump_json(exclude_unset=True).encode())


def estimated_tokens(size: int) -> int:
    """Return the estimated tokens of a message of `size` bytes: one for 3.3 bytes, and its frame."""
    return max(size * 10 // 33, 1) + OVERHEAD_PER_MESSAGE


def estimated_message_tokens(messages: tuple[Message, ...]) -> int:
    return sum(estimated_tokens(message_size(message)) for message in messages)


def estimated_bytes(tokens: float) -> int:
    """Return the bytes of text that take so many tokens."""
    return max(int(tokens * 33 / 10), 0)


def frame_tokens(setup: Setup) -> int:
    """Return the estimated tokens that are part of every call: instructions, tools, the answer's schema."""
    texts = [setup.instructions.encode("utf-8", "replace")] if setup.instructions else []
    texts += [to_json((tool.name, tool.description, tool.parameters)) for tool in setup.tools]
    texts += [to_json(setup.output_schema)] if setup.output_schema else []
    return sum(estimated_tokens(len(text)) for text in texts)


MIN_ESTIMATE = 500
"""Estimated tokens. Below this the provider's own overhead is larger than the text, so a measurement is worthless."""

MIN_CALIBRATION, MAX_CALIBRATION = 0.5, 3.0

CALIBRATION_WEIGHT = 0.5
"""The weight of the newest measurement."""


def with_frame_size(state: AgentState) -> AgentState:
    """Return the state with the size of instructions and tools, measured once in a run."""
    if state.setup is None or state.conversation.frame:
        return state
    return state.with_dialogue(conversation=state.conversation.with_fields(frame=frame_tokens(state.setup)))


def estimated_sent_tokens(conversation: Conversation) -> int:
    return conversation.frame + conversation.tokens


def message_budget(state: AgentState) -> int:
    """Return the estimated tokens that messages may take: the budget without instructions and tools."""
    whole = int(state.config.context_token_budget / state.calibration)
    return max(whole - state.conversation.frame, 0)


def attachments_problem(media: Sequence[MediaPart], token_budget: int) -> str:
    tokens = sum(part.tokens for part in media)
    if tokens <= token_budget:
        return ""
    return (
        f"attachments: they take about {tokens:,} tokens, over the context_token_budget of {token_budget:,}. Raise it, "
        "attach less, or let the agent read the files with read_file"
    )


def halved_budget(sent: Conversation) -> int:
    """Return the token budget for messages after `sent` was too long for the provider. The whole call is halved."""
    return max(estimated_sent_tokens(sent) // 2 - sent.frame, 0)


def with_calibration(state: AgentState, sent: Conversation, input_tokens: int) -> AgentState:
    """Return the state after a reply to `sent`. `input_tokens` is the provider's count, 0 if there is none."""
    estimate = estimated_sent_tokens(sent)
    if estimate < MIN_ESTIMATE or input_tokens <= 0:
        return state
    measured = min(max(input_tokens / estimate, MIN_CALIBRATION), MAX_CALIBRATION)
    smoothed = state.calibration + (measured - state.calibration) * CALIBRATION_WEIGHT
    return state.with_dialogue(calibration=round(smoothed, 4))


def fair_shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return the share of each size: short ones get all they need, and the long ones share the rest."""
    shares = [0] * len(sizes)
    left = room
    shortest_first = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for waiting, index in zip(range(len(sizes), 0, -1), shortest_first, strict=True):
        shares[index] = min(sizes[index], left // waiting)
        left -= shares[index]
    return shares


MAX_NEWS_BYTES = 400_000
"""Bytes of JSON of all news in one model call. Its input, and the state between two calls, have to fit a payload."""

MIN_TEXT_BYTES = 300
"""Bytes that a text keeps, however little room there is."""


def with_message(
    conversation: Conversation, message: Message, news: MessageRef | None = None, most: int | None = None
) -> Conversation:
    """Return the conversation with one more message. Without `news` the message itself is the news.

    Its text is cut to `most` bytes, and to the room that is left for unseen messages.
    """
    cut = _cut_bytes(conversation, message, most)
    if cut is not None:
        message = shortened_message(message, cut)
        news = None if news is None else news.with_cut(cut)
    size = message_size(message)
    return conversation.with_fields(
        messages=(*conversation.messages, message),
        news=(*conversation.news, news or MessageRef(message=message)),
        tokens=conversation.tokens + estimated_tokens(size),
        size=conversation.size + size,
        unseen=conversation.unseen + message_json_bytes(message),
    )


def with_recorded_reply(state: S, reply: Reply) -> S:
    """Add the latest reply to the conversation. It is news by reference, because the history has it already."""
    conversation = with_message(state.conversation, reply.message(), MessageRef(reply=state.iteration))
    return state.with_dialogue(conversation=conversation)


def with_message_to_model(state: S, text: str) -> S:
    return state.with_dialogue(conversation=with_message(state.conversation, Message.of("user", text)))


def _cut_bytes(conversation: Conversation, message: Message, most: int | None) -> int | None:
    """Return the bytes to cut the message's text to, or None if all of it fits."""
    size = len(message.text.encode("utf-8", "replace"))
    room = bytes_in_json(message.text, max(MAX_NEWS_BYTES - conversation.unseen, MIN_TEXT_BYTES))
    limits = [limit for limit in (room, most) if limit is not None]
    cut = max(min(limits, default=size), MIN_TEXT_BYTES)
    return cut if cut < size else None


def without_recall_block(conversation: Conversation) -> Conversation:
    """Return the conversation without recalled knowledge. If the model has seen it, the next call leaves it out."""
    messages, sent = conversation.messages, conversation.sent
    block_index = next((index for index, message in enumerate(messages) if message.knowledge), None)
    if block_index is None:
        return conversation
    block, others = messages[block_index], (*messages[:block_index], *messages[block_index + 1 :])
    size = message_size(block)
    smaller = conversation.with_fields(
        messages=others, tokens=conversation.tokens - estimated_tokens(size), size=conversation.size - size
    )
    if block_index >= sent:
        news = tuple(reference for reference in conversation.news if reference.recall is None)
        return smaller.with_fields(news=news, unseen=conversation.unseen - message_json_bytes(block))
    smaller = smaller.with_fields(sent=sent - 1, digest=messages_digest(others[: sent - 1]), forget=True)
    return smaller if smaller.ready is None else smaller.with_fields(ready=None)  # its ranges count the block


def is_within_budget(conversation: Conversation, token_budget: int) -> bool:
    """Return True if the whole conversation may go to the model."""
    return conversation.tokens <= token_budget and conversation.size <= MAX_CONVERSATION_BYTES


def reference_and_seen(
    conversation: Conversation, drop: Ranges = (), mask: Ranges = (), summary: Summary | None = None
) -> tuple[ContextRef, Conversation]:
    """Return the reference for the next model call, and the conversation after the model has seen all of it.

    `drop` and `mask` are ranges of messages that the model has seen. `summary` replaces the dropped ones.
    """
    messages, sent = conversation.messages, conversation.sent
    replacement = summary_message(summary.text) if summary and drop else None
    base = HashedMessages(messages[:sent], conversation.digest).with_compaction(drop, mask, replacement)
    chain = base.plus(messages[sent:])
    context = ContextRef(news=conversation.news, head=short_digest(chain.digest))
    if conversation.forget:
        context = context.with_forget()
    if drop or mask:
        context = context.with_compaction(drop, mask, _summary_reference(summary, replacement))
        conversation = with_messages(conversation, chain.messages)
    seen = _without_next_changes(conversation).with_fields(
        messages=chain.messages, sent=len(chain.messages), digest=chain.digest, news=(), unseen=0
    )
    return context, seen


def _summary_reference(summary: Summary | None, replacement: Message | None) -> MessageRef | None:
    if summary is None or replacement is None:
        return None
    return MessageRef(summary=summary.call) if summary.call else MessageRef(message=replacement)


def with_messages(conversation: Conversation, messages: tuple[Message, ...]) -> Conversation:
    sizes = [message_size(message) for message in messages]
    tokens = sum(estimated_tokens(size) for size in sizes)
    return conversation.with_fields(messages=messages, tokens=tokens, size=sum(sizes))


def with_all_as_base(conversation: Conversation) -> Conversation:
    """Return the conversation for a new segment or a fork: all messages count as seen, and there is no news."""
    digest, sent = full_digest(conversation), len(conversation.messages)
    return _without_next_changes(conversation).with_fields(sent=sent, digest=digest, news=(), unseen=0)


def _without_next_changes(conversation: Conversation) -> Conversation:
    """Return the conversation without changes for the next model call: a block to forget, and a ready summary."""
    conversation = conversation.with_fields(forget=False) if conversation.forget else conversation
    return conversation if conversation.ready is None else conversation.with_fields(ready=None)


def full_digest(conversation: Conversation) -> str:
    """Return the digest of all messages, including those that the model has not seen."""
    return messages_digest(conversation.messages[conversation.sent :], conversation.digest)


MIN_NEWS_BYTES = 4_000
"""Bytes that news may always take, even if instructions, tools and the task leave no room in the budget."""


def news_bytes_left(state: AgentState) -> int:
    """Return the bytes that are left for news in the budget, after all messages that have to stay."""
    if state.config.context_strategy == "none":
        return MAX_NEWS_BYTES
    messages, sent = state.conversation.messages, state.conversation.sent
    turn = latest_turn(messages)
    pinned = [messages[i] for i in range(1, sent) if is_dropped_last(messages, i, turn)]
    stays = [*messages[:1], *pinned, *messages[max(sent, 1) :]]
    left = estimated_bytes(message_budget(state)) - sum(map(message_size, stays))
    return min(max(left, MIN_NEWS_BYTES), MAX_NEWS_BYTES)
