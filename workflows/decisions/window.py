"""Which messages are left out when the conversation outgrows its budget (`sliding_window`)."""

from itertools import pairwise

from workflows.decisions.estimate import size_of, tokens_of
from workflows.types.messages import Message
from workflows.types.ranges import Ranges, ranges_of
from workflows.types.state import Conversation

MAX_CONVERSATION_BYTES = 1_000_000
"""Above this a conversation could not be carried in one payload of 2 MB beside the rest of the state."""

KEEP_SHARE = 0.7
"""Dropping goes down to this part of the budget: rarely and much, so that providers' prompt caches live longer."""


def fits(conversation: Conversation, token_budget: int) -> bool:
    """Return whether nothing has to go."""
    return conversation.tokens <= token_budget and conversation.size <= MAX_CONVERSATION_BYTES


def messages_to_drop(conversation: Conversation, token_budget: int, reserve: int = 0) -> Ranges:
    """Return the ranges of messages to leave out, oldest first; empty while the conversation fits.

    A call and its results go together. The task, pinned messages and all from the model's last message on stay; only
    where pinned messages alone outgrow the budget or the payload do the oldest of them go too, the task never. What the
    model saw last stays where it can: it goes only so that what came of it since has room. `reserve` are tokens to make
    room for beside what is kept.
    """
    if fits(conversation, token_budget):
        return ()
    target = token_budget * KEEP_SHARE - reserve
    tokens, size = conversation.tokens, conversation.size
    dropped: set[int] = set()
    seen_last = latest_group(conversation.messages[: conversation.sent])
    for start, stop in _groups(conversation, pinned=False):
        if size <= MAX_CONVERSATION_BYTES * KEEP_SHARE and tokens <= target:
            break
        if start >= seen_last and size <= MAX_CONVERSATION_BYTES and tokens <= token_budget - reserve:
            break
        sizes = [size_of(message) for message in conversation.messages[start:stop]]
        tokens -= sum(tokens_of(part) for part in sizes)
        size -= sum(sizes)
        dropped |= set(range(start, stop))
    return ranges_of(dropped | _pinned_to_drop(conversation, token_budget, size))


def _pinned_to_drop(conversation: Conversation, token_budget: int, size: int) -> set[int]:
    """Return which pinned messages go, `size` being the bytes of all that is left so far: the oldest first."""
    groups = _groups(conversation, pinned=True)
    sizes = {start: size_of(conversation.messages[start]) for start, _ in groups}
    tokens = sum(map(tokens_of, sizes.values()))
    if size <= MAX_CONVERSATION_BYTES and tokens <= token_budget:
        return set()
    dropped: set[int] = set()
    for start, part in sizes.items():
        if size <= MAX_CONVERSATION_BYTES * KEEP_SHARE and tokens <= token_budget:
            break
        size, tokens = size - part, tokens - tokens_of(part)
        dropped.add(start)
    return dropped


def latest_group(messages: tuple[Message, ...]) -> int:
    """Return where the last group starts: the model's last message.

    What follows that message stays with it: after continue-as-new the model may not have seen it yet.
    """
    return max((i for i, message in enumerate(messages) if message.role == "assistant"), default=len(messages))


def _groups(conversation: Conversation, pinned: bool) -> list[tuple[int, int]]:
    """Return the groups that may go: a message with the tool results that follow it; the first and last never.

    The last is what the model saw last, unless it has said something since.
    """
    messages, sent = conversation.messages[: conversation.sent], conversation.sent
    has_replied = any(message.role == "assistant" for message in conversation.messages[sent:])
    latest = sent if has_replied else latest_group(messages)
    starts = [i for i, message in enumerate(messages) if message.role != "tool"]
    bounds = list(pairwise([*starts, len(messages)]))[1:]
    may_go = bounds if has_replied else bounds[:-1]
    return [(start, stop) for start, stop in may_go if start < latest and messages[start].pinned == pinned]
