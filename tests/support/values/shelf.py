"""A knowledge store in memory, for tests of its users.

It finds every visible item that shares a word with the query.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import cast

from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.workflows.types.context import text_digest
from orga.workflows.types.knowledge import KnowledgeItem, Reader, Recall, Recalled, Stored, StoredItem

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Shelf:
    """Keeps items in order. The score of an item is the share of its words that the query contains."""

    def __init__(self, *items: KnowledgeItem) -> None:
        self.held: dict[str, StoredItem] = {}
        self.queries: list[Recall] = []
        self.stored: list[KnowledgeItem] = []
        self.down: KnowledgeError | None = None
        for item in items:
            self._put(item)

    @property
    def as_store(self) -> KnowledgeStore:
        """This shelf, typed as the port."""
        return cast(KnowledgeStore, self)

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        """Keep the items."""
        self._fail_if_down()
        self.stored += items
        return [self._put(item) for item in items]

    async def recall(self, query: Recall) -> list[Recalled]:
        """Return the visible items that share a word."""
        self._fail_if_down()
        self.queries.append(query)
        asked = set(query.text.casefold().split())
        found: list[Recalled] = []
        for item in self.held.values():
            words = item.text.casefold().replace(".", " ").split()
            score = len(asked & set(words)) / len(words) if asked else 1.0
            if item.kind in query.kinds and _may_see(item, query.reader) and score >= max(query.threshold, 0.01):
                found.append(Recalled(item=item, score=score))
        return sorted(found, key=lambda each: -each.score)[: query.limit]

    async def items(self) -> AsyncIterator[StoredItem]:
        """Return all items."""
        for item in self.held.values():
            yield item

    def _put(self, item: KnowledgeItem) -> Stored:
        item_id = text_digest(f"{item.scope}/{item.owner}/{item.key or item.text}")[:12]
        change = "updated" if item_id in self.held else "added"
        self.held[item_id] = StoredItem(**item.model_dump(), id=item_id, stored_at=T0)
        return Stored(id=item_id, change=change)

    def _fail_if_down(self) -> None:
        if self.down is not None:
            raise self.down


def _may_see(item: StoredItem, reader: Reader) -> bool:
    owner = item.owner
    match item.scope:
        case "global":
            return True
        case "tenant":
            return owner.tenant == reader.tenant
        case "user":
            return (owner.tenant, owner.user) == (reader.tenant, reader.user)
        case "agent":
            return (owner.tenant, owner.agent) == (reader.tenant, reader.agent)


def a_fact(text: str, **fields: object) -> KnowledgeItem:
    """Return a fact of the empty tenant."""
    return KnowledgeItem.model_validate({"kind": "fact", "text": text, **fields})
