"""The conversation grows by news and is handed to the model by reference."""

from workflows.decisions.estimate import size_of, tokens_of, weight_of
from workflows.types.clipped import bytes_in_json
from workflows.types.context import ContextRef, HashedMessages, MessageRef
from workflows.types.digest import digest_of, reference
from workflows.types.messages import Message
from workflows.types.ranges import Ranges
from workflows.types.shortened import shortened
from workflows.types.state import Conversation
from workflows.types.summary import Summary, summary_message

MAX_NEWS_BYTES = 400_000
"""Of all that one model call brings, as JSON: its input, and the state between two calls, have to fit a payload."""

MIN_TEXT_BYTES = 300
"""Of one text, however little room there is."""


def with_message(
    conversation: Conversation, message: Message, news: MessageRef | None = None, most: int | None = None
) -> Conversation:
    """Return the conversation with one more message; without `news` the message itself is the news.

    Its text is cut to `most` bytes, and to what is left for all that the model has not seen yet.
    """
    cut = _cut(conversation, message, most)
    if cut is not None:
        message = shortened(message, cut)
        news = None if news is None else news.model_copy(update={"cut": cut})
    size = size_of(message)
    return conversation.model_copy(
        update={
            "messages": (*conversation.messages, message),
            "news": (*conversation.news, news or MessageRef(message=message)),
            "tokens": conversation.tokens + tokens_of(size),
            "size": conversation.size + size,
            "unseen": conversation.unseen + weight_of(message),
        }
    )


def _cut(conversation: Conversation, message: Message, most: int | None) -> int | None:
    """Return to how many bytes a text is cut; None where all of it has room."""
    size = len(message.text.encode("utf-8", "replace"))
    room = bytes_in_json(message.text, max(MAX_NEWS_BYTES - conversation.unseen, MIN_TEXT_BYTES))
    cut = min(size if room is None else room, size if most is None else most)
    return max(cut, MIN_TEXT_BYTES) if cut < size > MIN_TEXT_BYTES else None


def handed_over(
    conversation: Conversation, drop: Ranges = (), mask: Ranges = (), summary: Summary | None = None
) -> tuple[ContextRef, Conversation]:
    """Return the reference that the next model call gets, and the conversation once the model has seen it all.

    `drop` and `mask` name ranges of messages that the model has seen already; `summary` stands for what is dropped.
    """
    messages, sent = conversation.messages, conversation.sent
    stands_in = summary_message(summary.text) if summary and drop else None
    base = HashedMessages(messages[:sent], conversation.digest).compacted(drop, mask, stands_in)
    chain = base.plus(messages[sent:])
    context = ContextRef(news=conversation.news, head=reference(chain.digest))
    update = _compaction(drop, mask, summary, stands_in)
    if update:
        context = context.model_copy(update=update)
        conversation = with_messages(conversation, chain.messages)
    seen: dict[str, object] = {"messages": chain.messages, "sent": len(chain.messages), "digest": chain.digest}
    return context, _used(conversation).model_copy(update=seen | {"news": (), "unseen": 0})


def _compaction(
    drop: Ranges, mask: Ranges, summary: Summary | None, stands_in: Message | None
) -> dict[str, Ranges | MessageRef]:
    """Return the fields that a reference has only where the conversation is compacted."""
    fields: dict[str, Ranges | MessageRef] = {"drop": drop} if drop else {}
    if mask:
        fields["mask"] = mask
    if summary is not None and stands_in is not None:
        fields["summary"] = MessageRef(summary=summary.call) if summary.call else MessageRef(message=stands_in)
    return fields


def with_messages(conversation: Conversation, messages: tuple[Message, ...]) -> Conversation:
    """Return the conversation with other messages, measured anew."""
    sizes = [size_of(message) for message in messages]
    tokens = sum(tokens_of(size) for size in sizes)
    return conversation.model_copy(update={"messages": messages, "tokens": tokens, "size": sum(sizes)})


def settled(conversation: Conversation) -> Conversation:
    """Return the conversation for a run that continues as new: all of it is the base, nothing is news."""
    digest = digest_of(conversation.messages[conversation.sent :], conversation.digest)
    sent = len(conversation.messages)
    return _used(conversation).model_copy(update={"sent": sent, "digest": digest, "news": (), "unseen": 0})


def _used(conversation: Conversation) -> Conversation:
    return conversation if conversation.ready is None else conversation.model_copy(update={"ready": None})


def full_digest(conversation: Conversation) -> str:
    """Return the digest of every message, seen by the model or not."""
    return digest_of(conversation.messages[conversation.sent :], conversation.digest)
