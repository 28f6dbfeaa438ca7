"""Which messages are left out when the conversation outgrows its budget (`sliding_window`)."""

from itertools import pairwise

from workflows.decisions.estimate import size_of, tokens_of
from workflows.types.context import Ranges
from workflows.types.messages import Message
from workflows.types.state import Conversation

MAX_CONVERSATION_BYTES = 1_000_000
"""Above this a conversation could not be carried in one payload of 2 MB beside the rest of the state."""

KEEP_SHARE = 0.7
"""Dropping goes down to this part of the budget: rarely and much, so that providers' prompt caches live longer."""


def messages_to_drop(conversation: Conversation, token_budget: int) -> Ranges:
    """Return the ranges of messages to leave out, oldest first; empty while the conversation fits.

    A call and its results go together. The task, pinned messages and all from the model's last message on stay; only
    where pinned messages alone outgrow the payload do the oldest of them go too, the task never.
    """
    if conversation.tokens <= token_budget and conversation.size <= MAX_CONVERSATION_BYTES:
        return ()
    tokens, size = conversation.tokens, conversation.size
    dropped: list[tuple[int, int]] = []
    for pinned in (False, True):
        if pinned and size <= MAX_CONVERSATION_BYTES:
            break
        for start, stop in _groups(conversation.messages[: conversation.sent], pinned):
            fits_payload = size <= MAX_CONVERSATION_BYTES * KEEP_SHARE
            if fits_payload and (pinned or tokens <= token_budget * KEEP_SHARE):
                break
            sizes = [size_of(message) for message in conversation.messages[start:stop]]
            tokens -= sum(tokens_of(part) for part in sizes)
            size -= sum(sizes)
            dropped.append((start, stop))
    return _joined(sorted(dropped))


def _groups(messages: tuple[Message, ...], pinned: bool) -> list[tuple[int, int]]:
    """Return the groups that may go: a message with the tool results that follow it; the first and last never.

    What follows the model's last message stays with it: after continue-as-new the model may not have seen it yet.
    """
    latest = max((i for i, message in enumerate(messages) if message.role == "assistant"), default=len(messages))
    starts = [i for i, message in enumerate(messages) if message.role != "tool"]
    bounds = list(pairwise([*starts, len(messages)]))
    return [(start, stop) for start, stop in bounds[1:-1] if start < latest and messages[start].pinned == pinned]


def _joined(ranges: list[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
