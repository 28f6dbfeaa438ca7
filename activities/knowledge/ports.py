"""What knowledge needs from outside, as protocols: a store and an embedder."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orga.workflows.types.knowledge import Erasure, KnowledgeItem, KnowledgeKind, Recall, Recalled, Stored, StoredItem

Progress = Callable[[int, int], None]
"""Told how many are done, and of how many."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """What it is and which model: vectors of another name are of no use and are made anew."""
        ...

    @property
    def dimensions(self) -> int:
        """Of each vector."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text.

        Raises:
            KnowledgeError: It cannot be had.
        """
        ...


@dataclass(frozen=True)
class StoreFacts:
    """What a store is made of."""

    backend: str
    place: str
    """The file or the server, no secret in it."""
    schema_version: int
    embedder: str
    """Of the vectors that it holds."""
    counts: dict[KnowledgeKind, int]
    tainted: int
    expired: int
    contradicted: int
    unindexed: int
    """Without a vector of the embedder in use, so that they are found by their words alone until `reindex`."""
    size_bytes: int


class KnowledgeStore(Protocol):
    """Keeps knowledge. Safe under concurrent writers of several processes; each call is one transaction."""

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        """Store all of them or none, and return what became of each, in order.

        A `StoredItem` (an export's) keeps its time; its id and what contradicts it are found anew.

        Raises:
            KnowledgeError: Nothing was stored.
        """
        ...

    async def recall(self, wish: Recall) -> list[Recalled]:
        """Return what fits, the best first; a fact that a newer one contradicts stands behind that one.

        Raises:
            KnowledgeError: The store cannot be read.
        """
        ...

    async def get(self, item_id: str) -> StoredItem | None:
        """Return the item, expired or not; for the operator, so that no scope is looked at."""
        ...

    def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        """Return all items of these kinds (all kinds where none is named), by id, for export; memory stays bounded."""
        ...

    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        """Erase them, and return how many went.

        Raises:
            KnowledgeError: Nothing is named, or nothing was erased.
        """
        ...

    async def purge(self) -> None:
        """Let nothing of what was forgotten or replaced remain in the store's files, as far as these are its own.

        Raises:
            KnowledgeError: Something may remain; it is recalled no more, whatever this does.
        """
        ...

    async def facts(self) -> StoreFacts:
        """Return what the store holds."""
        ...

    async def reindex(self, progress: Progress) -> int:
        """Make vectors of another embedder and the text index anew, and return of how many items; can be resumed."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


class KnowledgeError(Exception):
    """The store cannot do it. Its text names the place and the remedy, and no secret."""

    def __init__(self, message: str, *, kind: str = "KnowledgeError", retryable: bool = False) -> None:
        """Describe the failure.

        Args:
            message: One line for people.
            kind: `Corrupt`, `Busy`, `NewerSchema`, `OtherEmbedder`, `Unreachable`, `InvalidItem`…
            retryable: Whether the same may succeed later.
        """
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
