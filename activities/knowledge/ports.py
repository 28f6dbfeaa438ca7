"""The protocols of a knowledge store and an embedder, their errors, and helpers for batches and pages of items."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

from orga.workflows.types.knowledge import Erasure, KnowledgeItem, KnowledgeKind, Recall, Recalled, Stored, StoredItem

Progress = Callable[[int, int], None]
"""Called with the number of finished items and the total."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """The kind of embedder and its model. Vectors of any other name are useless and are recomputed."""
        ...

    @property
    def dimensions(self) -> int: ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text. Raise KnowledgeError if that is impossible."""
        ...


@dataclass(frozen=True)
class StoreFacts:
    """The facts about a store that people can see."""

    backend: str
    place: str
    """The file or the server, without secrets."""
    schema_version: int
    embedder: str
    """Embedder of the stored vectors."""
    counts: dict[KnowledgeKind, int]
    tainted: int
    expired: int
    contradicted: int
    unindexed: int
    """Items without a vector of the current embedder. Until `reindex`, they are found by their words only."""
    size_bytes: int


class KnowledgeStore(Protocol):
    """Keeps knowledge. Several processes may write at the same time. Each call is one transaction."""

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        """Store all items or none, and return what was done with each, in order.

        A `StoredItem` of an export keeps its time. Its id and its contradictions are computed again.

        Raises:
            KnowledgeError: Nothing was stored.
        """
        ...

    async def recall(self, query: Recall) -> list[Recalled]:
        """Return the matching items, the best first. A contradicted fact comes after the newer one."""
        ...

    async def get(self, item_id: str) -> StoredItem | None:
        """Return the item, even if it has expired. This is for the operator, so scopes are not checked."""
        ...

    def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        """Return all items of these kinds (none means all) and with this source prefix, by id, in bounded memory."""
        ...

    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        """Erase the items that match, and return how many of each kind they were.

        Raises:
            KnowledgeError: Nothing is named, or the erasure failed and changed nothing.
        """
        ...

    async def purge(self) -> None:
        """Remove all forgotten and replaced items from the store's own files.

        Raises:
            KnowledgeError: Remains may be in the files, but no search finds them.
        """
        return

    async def facts(self) -> StoreFacts: ...

    async def reindex(self, progress: Progress) -> int:
        """Recompute the text index and vectors of other embedders, and return the number of items. It can resume."""
        del progress
        return 0

    async def close(self) -> None:
        """Close what was opened."""
        return


class KnowledgeError(Exception):
    """A failure of a store. Its text names the place and the remedy, and contains no secret."""

    def __init__(self, message: str, *, kind: str = "KnowledgeError", retryable: bool = False) -> None:
        """Describe the failure.

        Args:
            message: One line for people.
            kind: `Corrupt`, `Busy`, `NewerSchema`, `OtherEmbedder`, `Unreachable`, `InvalidItem`…
            retryable: Whether the same operation may succeed later.
        """
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable


T = TypeVar("T")

BATCH_ITEMS = 256
"""Items that are stored or forgotten in one batch."""


def batches(items: Iterable[T], size: int = BATCH_ITEMS) -> Iterator[list[T]]:
    """Yield the items in order, in batches that are not empty. Read items only when they are needed."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


PAGE_ITEMS = 200
"""Items that are in memory at the same time."""


async def paged_items(next_page: Callable[[str], Awaitable[list[StoredItem]]]) -> AsyncIterator[StoredItem]:
    """Yield the items of all pages. `next_page` returns the page after an id. An empty page is the end."""
    after = ""
    while page := await next_page(after):
        for item in page:
            yield item
        after = page[-1].id
