"""The interface of a wire protocol, and the order of messages that all providers accept."""

import hashlib
import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Protocol

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.errors import ProviderFailures
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Message, Reply


class StreamReader(Protocol):
    """Reads the frames of one reply."""

    def feed(self, frame: dict[str, Any]) -> bool:
        """Take one frame; return whether nothing more is wanted.

        Raises:
            ModelError: When the frame is the provider's own report of a failure.
        """
        ...

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            ModelError: BadStream when its end was never marked.
        """
        ...


class Wire(Protocol):
    """One protocol: where to post, what to send, how to read."""

    @property
    def path(self) -> str:
        """Appended to the base URL."""
        ...

    @property
    def name_pattern(self) -> str:
        """A regular expression for what refusals call the protocol."""
        ...

    @property
    def may_be_missing(self) -> bool:
        """Whether a server of this provider may lack the protocol."""
        ...

    def dialect(self, model: str) -> Dialect:
        """Return what is known of `model` before the first refusal."""
        ...

    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        """Return the JSON to send."""
        ...

    def reader(self, request: ModelRequest, on_text: Callable[[str], None], failures: ProviderFailures) -> StreamReader:
        """Return a reader for the answer to `request`."""
        ...


OMITTED_BEGINNING = "[The beginning of this conversation was left out.]"
"""Of the user, where compaction left a conversation to begin with the assistant, which many refuse."""

_ILLEGAL_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


def with_results_first(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with the tool results of a turn right behind the calls that they answer.

    Guidance that arrived between two results moves behind both: a provider refuses a call without its result.
    """
    ordered: list[Message] = []
    for _, turn in groupby(messages, key=lambda message: message.role == "assistant"):
        ordered.extend(sorted(turn, key=lambda message: message.role not in {"assistant", "tool"}))
    return ordered


def wire_name(name: str) -> str:
    """Return a name that providers take back: a model may have called what can't exist."""
    return _ILLEGAL_CHARACTER.sub("_", name)[:64] or "unknown"


def wire_id(call_id: str | None) -> str:
    """Return a call id that every provider takes, the same one for the same call."""
    given = call_id or ""
    if given and len(given) <= 64 and not _ILLEGAL_CHARACTER.search(given):
        return given
    return f"call_{hashlib.sha256(given.encode()).hexdigest()[:24]}"
