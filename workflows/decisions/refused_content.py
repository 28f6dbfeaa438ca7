"""Leaves out the content that a provider's content filter refused, so that no later request is refused for it.

The filter does not name the refused content. So the run finds it by further requests, one at a time:

1. New data is left out: results of tools, lookups, recalled knowledge, and untrusted messages.
2. If that is refused too, everything older than the current turn is left out as well.
3. If that is refused too, the messages of the turn are the cause. They are replaced, the older ones stay, and the turn
   ends.
"""

from collections.abc import Callable
from typing import NamedTuple

from orga.workflows.decisions.compaction import latest_group
from orga.workflows.decisions.conversation import message_json_bytes, with_messages
from orga.workflows.types.context import MessageRef
from orga.workflows.types.conversation import Conversation, latest_turn
from orga.workflows.types.messages import Message, Ranges, masked_message, range_indexes, ranges_of
from orga.workflows.types.parts import OwnText, text_part
from orga.workflows.types.state import AgentState

LEFT_OUT_TEXT = "[Left out: the content filter of the model's provider refused this text. Do without it.]"


class ReducedConversation(NamedTuple):
    """A conversation without content that the filter may have refused."""

    conversation: Conversation
    drop: Ranges = ()
    """Messages that the model has seen and that are left out."""
    mask: Ranges = ()
    """Results that count as seen, and whose text is left out."""


def without_new_data(conversation: Conversation, mask: Ranges = ()) -> ReducedConversation:
    """Return the conversation without new data. `mask` are the results that the refused call masked already."""
    messages, sent = conversation.messages, conversation.sent
    group = latest_group(messages)
    # after continue-as-new, results count as seen although the model may not have seen them
    unseen = {i for i in range(group, sent) if masked_message(messages[i]) is not messages[i]}
    return ReducedConversation(
        _with_changed_news(conversation, _without_data), mask=ranges_of(range_indexes(mask) | unseen)
    )


def without_older(conversation: Conversation) -> ReducedConversation:
    """Return only the current turn of the conversation, without its new data."""
    turn, sent = latest_turn(conversation.messages), conversation.sent
    drop = ranges_of(set(range(sent)) - set(turn))

    def replacement(index: int, message: Message) -> Message | None:
        return _without_data(index, message) if index >= turn.start else None

    return ReducedConversation(_with_changed_news(conversation, replacement), drop)


def with_new_replaced(state: AgentState) -> AgentState:
    """Return the state without the news of this turn: placeholders for messages, nothing for calls and results."""
    turn = latest_turn(state.conversation.messages)

    def replacement(index: int, message: Message) -> Message | None:
        if index < turn.start:
            return message
        return None if message.calls or message.role == "tool" else _placeholder(message)

    return state.with_dialogue(conversation=_with_changed_news(state.conversation, replacement))


def with_refusal_noted(state: AgentState, before: Conversation, after: Conversation, error: str) -> AgentState:
    """Return the state with a note on the number of messages that were left out. `error` is the filter's refusal."""
    kept = {id(message) for message in after.messages}
    left_out = sum(id(message) not in kept for message in before.messages)
    if not left_out:
        return state
    return state.with_note("ContextCompacted", strategy="refused_content", messages_replaced=left_out, error=error)


def _without_data(index: int, message: Message) -> Message:
    is_looked_up = message.pinned and index > 0
    is_data = message.role == "tool" or _is_untrusted(message) or is_looked_up
    return _placeholder(message) if is_data else message


def _is_untrusted(message: Message) -> bool:
    return message.knowledge or message.untrusted or message.summary


def _placeholder(message: Message) -> Message:
    if message.result is not None:
        return message.with_parts((message.result.with_text(LEFT_OUT_TEXT).with_ours(OwnText(len(LEFT_OUT_TEXT))),))
    if _is_untrusted(message):
        return Message.of("user", LEFT_OUT_TEXT)
    return message.with_parts((text_part(LEFT_OUT_TEXT),))


def _with_changed_news(conversation: Conversation, change: Callable[[int, Message], Message | None]) -> Conversation:
    """Return the conversation with its news changed. `change` returns a message's replacement, or None to remove it."""
    sent = conversation.sent
    messages, news = list[Message](), list[MessageRef]()
    unseen = zip(conversation.messages[sent:], conversation.news, strict=True)
    for index, (message, reference) in enumerate(unseen, sent):
        changed = change(index, message)
        if changed is not None:
            messages.append(changed)
            news.append(reference if changed is message else MessageRef(message=changed))
    return with_messages(conversation, (*conversation.messages[:sent], *messages)).with_fields(
        news=tuple(news), unseen=sum(map(message_json_bytes, messages))
    )
