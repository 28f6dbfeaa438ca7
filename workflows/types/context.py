"""The input of a model call: new messages, and references by digest to all others.

The input's size does not grow with the run.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from pydantic import BaseModel, model_serializer, model_validator

from orga.workflows.types.messages import Message, Ranges, messages_without, shortened_message, with_masks
from orga.workflows.types.models.call_settings import Effort
from orga.workflows.types.record import Record, replace_fields

EMPTY_DIGEST = ""
"""The digest of a conversation without messages."""

REFERENCE_BYTES = 16
"""Bytes of a digest that a payload contains. As base64 they take 22 characters."""


def extended_digest(digest: str, message: Message) -> str:
    """Return the digest after one more message: a chain of sha256, 64 hex characters."""
    return sha256(digest.encode() + canonical_json(message)).hexdigest()


def messages_digest(messages: tuple[Message, ...], start: str = EMPTY_DIGEST) -> str:
    """Return the digest after `messages` are appended to the conversation with the digest `start`."""
    for message in messages:
        start = extended_digest(start, message)
    return start


def short_digest(digest: str) -> str:
    return urlsafe_b64encode(bytes.fromhex(digest)[:REFERENCE_BYTES]).decode().rstrip("=")


def record_digest(record: BaseModel) -> str:
    return sha256(canonical_json(record)).hexdigest()


def text_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def canonical_json(record: BaseModel) -> bytes:
    """Return the record's only JSON text: fields in the order of its type, without defaults."""
    return record.model_dump_json(exclude_defaults=True).encode()


class MessageRef(Record):
    """One message that the model has not seen: by reference if the history holds it, else in full.

    Exactly one field is set, in addition to `cut`. In JSON, `8` is the reply of iteration 8, `"8.0"` is the result of
    its first call, and an object with a role is a message in full. The others name their field:
    `{"summary": "8.summary"}`, `{"recall": "8.recall"}`, and with a cut `{"result": "8.0", "cut": 9000}`.
    """

    reply: int | None = None
    """The assistant message of that iteration's model call."""
    result: str | None = None
    """The result of the tool activity with that id."""
    message: Message | None = None
    summary: str | None = None
    """The result of the `summarise` activity with that id."""
    recall: str | None = None
    """The block in the result of the `recall_context` activity with that id."""
    cut: int | None = None
    """Bytes of the text that the model sees. Set if the conversation has no room for the whole text."""

    def with_cut(self, cut: int) -> Self:
        return replace_fields(self, {"cut": cut})

    @model_serializer
    def _serialized_reference(self) -> Any:
        if self.recall is None and self.summary is None and self.cut is None:
            return self.message or self.result or self.reply
        names = ("recall", "summary", "result", "reply", "cut")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def shown(self, message: Message) -> Message:
        return message if self.cut is None else shortened_message(message, self.cut)

    @model_validator(mode="before")
    @classmethod
    def _from_reference(cls, value: Any) -> Any:
        match value:
            case int():
                return {"reply": value}
            case str():
                return {"result": value}
            case {"role": _}:
                return {"message": value}
            case _:
                return value or {}


@dataclass(frozen=True)
class HashedMessages:
    """Messages and their digest. The digest is extended, not computed again, when messages are added."""

    messages: tuple[Message, ...] = ()
    digest: str = EMPTY_DIGEST

    def plus(self, messages: tuple[Message, ...]) -> "HashedMessages":
        return HashedMessages((*self.messages, *messages), messages_digest(messages, self.digest))

    def without_knowledge(self) -> "HashedMessages":
        kept = tuple(message for message in self.messages if not message.knowledge)
        return self if len(kept) == len(self.messages) else HashedMessages().plus(kept)

    def with_compaction(self, drop: Ranges, mask: Ranges, summary: Message | None) -> "HashedMessages":
        """Return the chain with the summary instead of `drop`, and with the results in `mask` masked."""
        if not drop and not mask:
            return self
        messages = messages_without(with_masks(self.messages, mask), drop)
        if summary is not None:
            start = drop[0][0]
            messages = (*messages[:start], summary, *messages[start:])
        return HashedMessages().plus(messages)


class ContextRef(Record):
    """A conversation by reference: the messages of the previous model call after compaction, then `news`.

    `head` is the digest of the whole conversation. It proves that the right call was used, so no field names that call.
    """

    forget: bool = False
    """True if the block of recalled knowledge is left out from now on. `drop` and `mask` count messages without it."""
    drop: Ranges = ()
    """Messages of the previous call that are left out from now on."""
    mask: Ranges = ()
    """Tool results of the previous call whose text is left out from now on. They are counted before `drop` applies."""
    summary: MessageRef | None = None
    news: tuple[MessageRef, ...] = ()
    head: str = ""

    def with_compaction(self, drop: Ranges, mask: Ranges, summary: MessageRef | None) -> Self:
        """Return the reference with this compaction. Empty values stay unset, to save history."""
        given = {"drop": drop, "mask": mask, "summary": summary}
        return replace_fields(self, {name: value for name, value in given.items() if value})

    def with_forget(self) -> Self:
        return replace_fields(self, {"forget": True})

    def apply_to(self, base: HashedMessages, resolve: Callable[[MessageRef], Message]) -> HashedMessages:
        """Return the conversation that this reference describes. `base` are the messages of the previous model call.

        Raise DigestMismatch if its digest is not `head`, so that a wrong conversation is never sent.
        """
        summary = None if self.summary is None or not self.drop else resolve(self.summary)
        base = base.without_knowledge() if self.forget else base
        kept = base.with_compaction(self.drop, self.mask, summary)
        chain = kept.plus(tuple(resolve(news) for news in self.news))
        if short_digest(chain.digest) != self.head:
            raise DigestMismatch(f"the {len(chain.messages)} messages found do not have the digest {self.head}")
        return chain


class DigestMismatch(ValueError):
    """The messages that were found do not have the expected digest."""


class ReasonRequest(Record):
    iteration: int
    setup: str = ""
    """Reference of the `Setup`. Only the first call has it, since the setup never changes."""
    context: ContextRef
    max_output_tokens: int | None = None
    """Set if the run has fewer tokens left than a reply may have, or if the previous reply was only thinking."""
    effort: Effort | None = None
    """Set if the model has to think less, because its replies were only thinking."""

    def with_settings(self, setup: str, max_output_tokens: int | None, effort: Effort | None) -> Self:
        """Return the request with these settings. Empty values stay unset, to save history."""
        given = {"setup": setup, "max_output_tokens": max_output_tokens, "effort": effort}
        return replace_fields(self, {name: value for name, value in given.items() if value})
