"""Finds the messages that a model call refers to: in this process's cache, or else in the run's own history."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from orga.activities.instruments import count
from orga.activities.ports import HistorySource, ModelContext, RunKey
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.context import (
    DigestMismatch,
    HashedMessages,
    MessageRef,
    ReasonRequest,
    canonical_json,
    record_digest,
    short_digest,
)
from orga.workflows.types.conversation import knowledge_message, messages_as_sent, summary_message
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.tools import ToolOutput, result_message

V = TypeVar("V")


class ByteCache(Generic[V]):
    """A cache whose values have at most `max_bytes` in total."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self.size = 0

    def get(self, key: Hashable) -> V | None:
        """Return the value, or None. It becomes the most recently used one."""
        if (entry := self._entries.get(key)) is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keep `value`, which takes `size` bytes. A value larger than the whole cache is not kept."""
        self.drop(key)
        if size > self._max_bytes:
            return
        self._entries[key] = (value, size)
        self.size += size
        while self.size > self._max_bytes:
            _, (_, freed) = self._entries.popitem(last=False)
            self.size -= freed

    def drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry[1]


CACHE_BYTES = 128 * 1024 * 1024
ENTRY_OVERHEAD = 500
"""Bytes that are counted for each entry, message and part, in addition to its content."""


class NotCached(LookupError):
    """This process lacks something that a model call refers to."""


@dataclass(frozen=True)
class _CachedConversation:
    """The setup and messages of a run's latest model call."""

    setup: Setup
    chain: HashedMessages = field(default_factory=HashedMessages)
    sent: tuple[Message, ...] = ()
    """The messages as a model gets them."""
    size: int = 0
    """Bytes of the setup, of the messages, and of those that a model gets in another form."""

    @classmethod
    def empty(cls, setup: Setup) -> "_CachedConversation":
        return cls(setup, size=_setup_size(setup))

    def with_chain(self, chain: HashedMessages) -> "_CachedConversation":
        """Return the conversation with another chain. If the chain only grew, only its new messages are prepared."""
        old = self.chain.messages
        has_grown = chain.messages[: len(old)] == old
        base = self if has_grown else self.empty(self.setup)
        new = chain.messages[len(base.sent) :]
        new_sent = messages_as_sent(chain.messages, self.setup.tools, len(base.sent))
        changed = tuple(sent for message, sent in zip(new, new_sent, strict=True) if sent is not message)
        size = base.size + _messages_size(new) + _messages_size(changed)
        return _CachedConversation(self.setup, chain, (*base.sent, *new_sent), size)


class Conversations:
    """A cache of the conversations that this process has seen, bounded in bytes. The history is the only truth."""

    def __init__(self, history: HistorySource, max_bytes: int = CACHE_BYTES) -> None:
        self._history = history
        self._messages: ByteCache[_CachedConversation] = ByteCache(max_bytes * 3 // 4)
        self._setups: ByteCache[Setup] = ByteCache(max_bytes // 8)
        self._outputs: ByteCache[Reply | ToolOutput | str] = ByteCache(max_bytes // 8)
        """Results of activities: replies, tools' results, summaries, and recalled knowledge."""
        self.misses = 0

    async def resolve(self, run: RunKey, request: ReasonRequest) -> ModelContext:
        """Return the setup and the messages of a model call. Their digest is checked."""
        try:
            known = self._from_cache(run, request)
        except (NotCached, DigestMismatch):
            self.misses += 1
            count(names.CACHE_MISSES)
            rebuilt = await self._history.rebuild(run, request.iteration)
            known = _CachedConversation.empty(rebuilt.setup).with_chain(HashedMessages().plus(rebuilt.messages))
        self._messages.put(run, known, known.size + ENTRY_OVERHEAD)
        for news in (*request.context.news, request.context.summary):
            if news is not None:
                self._outputs.drop((run, _output_key(news)))  # the conversation now has this output as a message
        return ModelContext(known.setup, known.chain.messages, known.sent)

    def keep_setup(self, setup: Setup) -> None:
        self._setups.put(short_digest(record_digest(setup)), setup, _setup_size(setup))

    def keep_reply(self, run: RunKey, iteration: int, reply: Reply) -> None:
        self._outputs.put((run, iteration), reply, len(canonical_json(reply)) + ENTRY_OVERHEAD)

    def keep_result(self, run: RunKey, activity_id: str, output: ToolOutput | str) -> None:
        """Remember a tool's result, a summary or recalled knowledge, because the next model call refers to it."""
        text = output if isinstance(output, str) else output.model_dump_json()
        self._outputs.put((run, activity_id), output, len(text.encode()) + ENTRY_OVERHEAD)

    def _from_cache(self, run: RunKey, request: ReasonRequest) -> _CachedConversation:
        known = self._messages.get(run)
        if known is None:
            setup = self._setups.get(request.setup)
            if setup is None:
                raise NotCached("setup")
            known = _CachedConversation.empty(setup)
        elif request.setup and request.setup != short_digest(record_digest(known.setup)):
            raise NotCached("setup")
        elif short_digest(known.chain.digest) == request.context.head:
            return known  # an earlier attempt has added the news
        setup = known.setup

        def shown_message(news: MessageRef) -> Message:
            return news.shown(self._message(run, news, setup))

        return known.with_chain(request.context.apply_to(known.chain, shown_message))

    def _message(self, run: RunKey, news: MessageRef, setup: Setup) -> Message:
        if news.message is not None:
            return news.message
        if news.reply is not None:
            return self._reply(run, news.reply).message()
        output = self._outputs.get((run, _output_key(news)))
        if isinstance(output, str):
            if news.summary is not None:
                return summary_message(output)
            if news.recall is not None:
                return knowledge_message(output)
            output = ToolOutput(content=output)
        if not isinstance(output, ToolOutput):
            raise NotCached("result")
        iteration, _, index = (news.result or "").partition(".")
        call = self._reply(run, int(iteration)).calls[int(index)]
        return result_message(call, output, setup.tool(call.name))

    def _reply(self, run: RunKey, iteration: int) -> Reply:
        reply = self._outputs.get((run, iteration))
        if not isinstance(reply, Reply):
            raise NotCached("reply")
        return reply


def _output_key(news: MessageRef) -> str | int | None:
    """Return the id of the activity, or the iteration of the reply, that a reference means."""
    return news.summary or news.recall or news.result or news.reply


def _setup_size(setup: Setup) -> int:
    """Return the bytes of a setup. Each run counts its own, because runs share one only if they begin here."""
    return len(canonical_json(setup)) + ENTRY_OVERHEAD * (1 + len(setup.tools))


def _messages_size(messages: tuple[Message, ...]) -> int:
    return sum(len(canonical_json(message)) + ENTRY_OVERHEAD * (1 + len(message.parts)) for message in messages)
