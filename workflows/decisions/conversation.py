"""The conversation grows by news and is handed to the model by reference.

How much of what an iteration brings the model is shown: the context budget, shared among the results.
"""

from orga.workflows.decisions.sizes import bytes_for, message_budget, size_of, tokens_of, weight_of
from orga.workflows.types.context import ContextRef, HashedMessages, MessageRef
from orga.workflows.types.digest import digest_of, reference
from orga.workflows.types.messages import Message, Ranges, shortened
from orga.workflows.types.state import AgentState, Conversation
from orga.workflows.types.summary import Summary, summary_message
from orga.workflows.types.text import bytes_in_json

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
        news = None if news is None else news.with_cut(cut)
    size = size_of(message)
    return conversation.with_fields(
        messages=(*conversation.messages, message),
        news=(*conversation.news, news or MessageRef(message=message)),
        tokens=conversation.tokens + tokens_of(size),
        size=conversation.size + size,
        unseen=conversation.unseen + weight_of(message),
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
    if drop or mask:
        context = context.with_compaction(drop, mask, _named(summary, stands_in))
        conversation = with_messages(conversation, chain.messages)
    seen = _used(conversation).with_fields(
        messages=chain.messages, sent=len(chain.messages), digest=chain.digest, news=(), unseen=0
    )
    return context, seen


def _named(summary: Summary | None, stands_in: Message | None) -> MessageRef | None:
    """Return what a reference names a summary by; None without one."""
    if summary is None or stands_in is None:
        return None
    return MessageRef(summary=summary.call) if summary.call else MessageRef(message=stands_in)


def with_messages(conversation: Conversation, messages: tuple[Message, ...]) -> Conversation:
    """Return the conversation with other messages, measured anew."""
    sizes = [size_of(message) for message in messages]
    tokens = sum(tokens_of(size) for size in sizes)
    return conversation.with_fields(messages=messages, tokens=tokens, size=sum(sizes))


def settled(conversation: Conversation) -> Conversation:
    """Return the conversation for a run that continues as new: all of it is the base, nothing is news."""
    digest = digest_of(conversation.messages[conversation.sent :], conversation.digest)
    sent = len(conversation.messages)
    return _used(conversation).with_fields(sent=sent, digest=digest, news=(), unseen=0)


def _used(conversation: Conversation) -> Conversation:
    return conversation if conversation.ready is None else conversation.with_fields(ready=None)


def full_digest(conversation: Conversation) -> str:
    """Return the digest of every message, seen by the model or not."""
    return digest_of(conversation.messages[conversation.sent :], conversation.digest)


LEAST_ROOM_BYTES = 4_000
"""Of what is new, however small the budget is, and however much of it instructions, tools and the task take."""


def news_room(state: AgentState) -> int:
    """Return the bytes that the model may be shown of what is new: what the budget leaves beside what never goes."""
    if state.config.context_strategy == "none":
        return MAX_NEWS_BYTES
    messages, sent = state.conversation.messages, state.conversation.sent
    stays = [*messages[:1], *[m for m in messages[1:sent] if m.pinned], *messages[max(sent, 1) :]]
    return min(max(bytes_for(message_budget(state)) - sum(map(size_of, stays)), LEAST_ROOM_BYTES), MAX_NEWS_BYTES)


def room_beside(reply: Message, room: int) -> int:
    """Return the bytes of `room` that are left for the results of a reply's calls."""
    return max(room - size_of(reply), LEAST_ROOM_BYTES)
