"""The conversation grows by news and is handed to the model by reference."""

from workflows.decisions.estimate import size_of, tokens_of
from workflows.types.context import ContextRef, News, Ranges, without
from workflows.types.digest import digest_of, extend, reference
from workflows.types.messages import Message
from workflows.types.state import Conversation


def added(conversation: Conversation, message: Message, news: News | None = None) -> Conversation:
    """Return the conversation with one more message; without `news` the message itself is the news."""
    size = size_of(message)
    return conversation.model_copy(
        update={
            "messages": (*conversation.messages, message),
            "news": (*conversation.news, news or News(message=message)),
            "tokens": conversation.tokens + tokens_of(size),
            "size": conversation.size + size,
        }
    )


def handed_over(conversation: Conversation, drop: Ranges = ()) -> tuple[ContextRef, Conversation]:
    """Return the reference that the next model call gets, and the conversation once the model has seen it all.

    `drop` names ranges of messages that the model has seen already.
    """
    messages, sent, digest = conversation.messages, conversation.sent, conversation.digest
    base = ContextRef(base=reference(digest), length=sent) if sent else ContextRef()
    if drop:
        base = base.model_copy(update={"drop": drop})
        kept = without(messages[:sent], drop)
        digest = digest_of(kept)
        messages = kept + messages[sent:]
        sent = len(kept)
    for message in messages[sent:]:
        digest = extend(digest, message)
    context = base.model_copy(update={"news": conversation.news, "head": reference(digest)})
    sizes = [size_of(message) for message in messages] if drop else []
    seen = {"messages": messages, "sent": len(messages), "digest": digest, "news": ()}
    if drop:
        seen |= {"tokens": sum(tokens_of(size) for size in sizes), "size": sum(sizes)}
    return context, conversation.model_copy(update=seen)


def settled(conversation: Conversation) -> Conversation:
    """Return the conversation for a run that continues as new: all of it is the base, nothing is news."""
    digest = digest_of(conversation.messages[conversation.sent :], conversation.digest)
    sent = len(conversation.messages)
    return conversation.model_copy(update={"sent": sent, "digest": digest, "news": ()})


def full_digest(conversation: Conversation) -> str:
    """Return the digest of every message, seen by the model or not."""
    return digest_of(conversation.messages[conversation.sent :], conversation.digest)
