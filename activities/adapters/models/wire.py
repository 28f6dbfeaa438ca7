"""The base classes of the wire protocols, and the order, names and ids of messages that all providers accept."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Set
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.errors import ProviderFailures
from orga.activities.adapters.models.pricing import reply_cost_usd
from orga.activities.adapters.models.reply import ReplyAssembly
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import FinishReason, Message, Reply
from orga.workflows.types.models.usage import Usage

T = TypeVar("T")


@dataclass
class StreamReader(ABC):
    """Reads the frames of one reply."""

    _provider: str
    _request: ModelRequest
    on_text: InitVar[Callable[[str], None]]
    _failures: ProviderFailures
    _assembly: ReplyAssembly = field(init=False)
    _model: str = field(init=False)
    _ended: bool = field(default=False, init=False)

    def __post_init__(self, on_text: Callable[[str], None]) -> None:
        self._assembly = ReplyAssembly(self._request, on_text)
        self._model = self._request.model

    @abstractmethod
    def feed(self, frame: dict[str, Any]) -> bool:
        """Read one frame, and return whether it was the last one needed. Raise ModelError if it reports a failure."""

    @abstractmethod
    def reply(self) -> Reply:
        """Return the reply. Raise ModelError (BadStream) if the end was never marked."""

    def _priced_reply(
        self, finish: FinishReason, counted: Usage, *, billed: object, cache_write_tokens: int, hour_tokens: int = 0
    ) -> Reply:
        tokens = {"cache_write_tokens": cache_write_tokens, "hour_tokens": hour_tokens}
        price = partial(reply_cost_usd, self._provider, self._request.model, billed=billed, **tokens)
        return self._assembly.reply(finish, counted, self._model, price)


@dataclass(frozen=True)
class Wire(ABC):
    """One protocol: its path, its request bodies and its reader. `provider` selects its own fields and prices."""

    provider: str
    path: ClassVar[str]
    """The path after the base URL."""
    name_pattern: ClassVar[str]
    """A regular expression for this protocol's names in refusals of requests by another protocol."""
    absence_pattern: ClassVar[str] = r"(?!)"
    """A regular expression for refusals which mean that the server lacks the protocol, whatever their status."""
    reader: ClassVar[type[StreamReader]]

    @property
    def may_be_missing(self) -> bool:
        """True if a server of this provider may lack the protocol."""
        return True

    @property
    def has_raw_text(self) -> bool:
        """True if the server may leave the model's thinking and calls in the text of a reply."""
        return False

    def absent_settings(self, model: str) -> Set[str]:
        """Return the settings that the protocol has no field for, by their names in `ModelSettings`."""
        return frozenset()

    @abstractmethod
    def dialect(self, model: str) -> Dialect:
        """Return the dialect of `model` before the first refusal."""

    @abstractmethod
    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        """Return the JSON to send."""


OMITTED_BEGINNING = "[The beginning of this conversation was left out.]"
"""The user's first text if a compacted conversation begins with the assistant. Many servers refuse such a beginning."""

CONTINUE_TEXT = "[Go on.]"
"""The user's last text if a conversation ends with the assistant. Most models take that for a prefill and refuse it."""

_ILLEGAL_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


def with_results_first(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with the tool results of a turn right after their calls.

    Guidance that arrived between two results moves after both, because a provider refuses a call without its result.
    """
    ordered: list[Message] = []
    for _, turn in groupby(messages, key=lambda message: message.role == "assistant"):
        ordered.extend(sorted(turn, key=lambda message: message.role != "tool"))
    return ordered


class WireTurn(NamedTuple, Generic[T]):
    """Consecutive messages of one side, in the protocol's form."""

    is_reply: bool
    """True if the assistant wrote them."""
    content: list[T]


def alternating_turns(
    messages: Iterable[Message], content_of: Callable[[Message], Iterable[T]], text: Callable[[str], T]
) -> list[WireTurn[T]]:
    """Return turns that alternate between user and assistant. The first and the last one are the user's.

    `content_of` and `text` return content in the protocol's form. A message without content is left out.
    """
    turns: list[WireTurn[T]] = []
    for message in with_results_first(each for each in messages if each.role != "system"):
        is_reply, content = message.role == "assistant", list(content_of(message))
        if content and turns and turns[-1].is_reply == is_reply:
            turns[-1].content.extend(content)
        elif content:
            turns.append(WireTurn(is_reply, content))
    if not turns or turns[0].is_reply:
        turns.insert(0, WireTurn(False, [text(OMITTED_BEGINNING)]))
    if turns[-1].is_reply:
        turns.append(WireTurn(False, [text(CONTINUE_TEXT)]))
    return turns


def system_texts(request: ModelRequest) -> list[str]:
    """Return all instructions, also those within the conversation, but no blank ones: some providers refuse these."""
    later = (message.text for message in request.messages if message.role == "system")
    return [text for text in (*request.system, *later) if text.strip()]


def called_names(request: ModelRequest) -> list[str]:
    """Return the names of all called tools. Claude refuses a conversation with calls if the request lists no tools."""
    return list(dict.fromkeys(wire_name(call.name) for message in request.messages for call in message.calls))


def cache_control(ttl: str | None) -> dict[str, Any]:
    """Return a breakpoint of Anthropic's prompt cache."""
    return {"type": "ephemeral"} | ({"ttl": ttl} if ttl else {})


def wire_name(name: str) -> str:
    """Return a tool name that providers accept. A model may have called a tool by an impossible name."""
    return _ILLEGAL_CHARACTER.sub("_", name)[:64] or "unknown"


def wire_id(call_id: str | None) -> str:
    """Return a call id that every provider accepts, always the same one for a call."""
    own = call_id or ""
    if own and len(own) <= 64 and not _ILLEGAL_CHARACTER.search(own):
        return own
    return f"call_{hashlib.sha256(own.encode()).hexdigest()[:24]}"
