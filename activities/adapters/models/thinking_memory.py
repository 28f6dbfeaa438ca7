"""Which thinking a provider would not take back: it is left out from then on, newer thinking goes back as ever."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

from pydantic_core import to_json

from orga.activities.adapters.models.kept_fields import PHASE
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Message
from orga.workflows.types.parts import Block

MAX_KEPT = 20_000
"""Blocks, by digest; the oldest are forgotten."""


class ThinkingMemory:
    """What one endpoint has said about the thinking that it was sent back."""

    def __init__(self) -> None:
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._taken: OrderedDict[str, None] = OrderedDict()

    def fitting(self, request: ModelRequest) -> ModelRequest:
        """Return the request without the thinking that was refused before: it would be refused again."""
        if not self._refused:
            return request
        return replace(request, messages=tuple(self._without_refused(message) for message in request.messages))

    def note_taken(self, request: ModelRequest) -> None:
        """Keep that all of it was taken."""
        _keep(self._taken, _marks(request.messages))

    def note_refused(self, request: ModelRequest) -> None:
        """Keep that something of it was refused. Which block it was nobody says, so all of them stay away."""
        _keep(self._refused, _marks(request.messages))

    def is_hopeless(self, whole: ModelRequest, sent: ModelRequest) -> bool:
        """Return whether the endpoint takes no thinking at all.

        Its thinking was refused once in the conversation that is `whole`, and what has come since then, in `sent`, is
        refused although nothing was ever taken. Where some was taken, something before it has changed meanwhile.
        """
        before = len(list(_marks(whole.messages)))
        now = list(_marks(sent.messages))
        return len(now) < before and not any(mark in self._taken for mark in now)

    def _without_refused(self, message: Message) -> Message:
        if not any(mark in self._refused for mark in _marks((message,))):
            return message
        return message.without_blocks()


def _marks(messages: Iterable[Message]) -> Iterable[str]:
    """Yield the digest of each thinking; phases are the same in many messages, and are never refused."""
    return (_mark(block) for message in messages for block in message.blocks if block.format != PHASE)


def _mark(block: Block) -> str:
    return sha256(to_json(block)).hexdigest()


def _keep(kept: OrderedDict[str, None], marks: Iterable[str]) -> None:
    for mark in marks:
        kept[mark] = None
        kept.move_to_end(mark)
    while len(kept) > MAX_KEPT:
        kept.popitem(last=False)
