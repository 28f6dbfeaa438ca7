"""The conversation grows by news and is handed to the model by reference."""

from workflows.decisions.estimate import size_of, tokens_of
from workflows.types.context import Chain, ContextRef, News, Ranges
from workflows.types.digest import digest_of, reference
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
    messages, sent = conversation.messages, conversation.sent
    chain = Chain(messages[:sent], conversation.digest).without(drop).plus(messages[sent:])
    update: dict[str, object] = {"messages": chain.messages, "sent": len(chain.messages), "digest": chain.digest}
    context = ContextRef(news=conversation.news, head=reference(chain.digest))
    if drop:
        context = context.model_copy(update={"drop": drop})
        sizes = [size_of(message) for message in chain.messages]
        update |= {"tokens": sum(tokens_of(size) for size in sizes), "size": sum(sizes)}
    return context, conversation.model_copy(update=update | {"news": ()})


def settled(conversation: Conversation) -> Conversation:
    """Return the conversation for a run that continues as new: all of it is the base, nothing is news."""
    digest = digest_of(conversation.messages[conversation.sent :], conversation.digest)
    sent = len(conversation.messages)
    return conversation.model_copy(update={"sent": sent, "digest": digest, "news": ()})


def full_digest(conversation: Conversation) -> str:
    """Return the digest of every message, seen by the model or not."""
    return digest_of(conversation.messages[conversation.sent :], conversation.digest)
