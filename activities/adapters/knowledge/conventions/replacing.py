"""What a store has of one source, a file say, brought up to date: nothing stays of what it no longer says."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from orga.activities.knowledge.batches import batches
from orga.activities.knowledge.erasing import forget_ids
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import KnowledgeItem, StoredItem

Change = Literal["added", "changed", "unchanged"]


@dataclass
class Kept:
    """What a store has of a source."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    """By key."""
    digests: dict[str, str] = field(default_factory=dict[str, str])
    """By key."""

    def keep(self, item: StoredItem) -> None:
        """Take in one item of the source."""
        self.ids[item.key] = item.id
        self.digests[item.key] = _digest(item)


async def replace(store: KnowledgeStore, kept: Kept, items: Sequence[KnowledgeItem]) -> Change:
    """Store what is new or says something else, forget the rest, and say what that was.

    Stopped in the middle, the next call goes on.

    Args:
        store: Where to.
        kept: All that the store has of the source.
        items: All that the source says now, each with a key of its own.

    Raises:
        KnowledgeError: Not all is done.
    """
    now = {item.key: _digest(item) for item in items}
    if now == kept.digests:
        return "unchanged"
    news = [item for item in items if kept.digests.get(item.key) != now[item.key]]
    for batch in batches(news):
        await store.store(batch)
    await forget_ids(store, [item_id for key, item_id in kept.ids.items() if key not in now])
    return "changed" if kept.ids else "added"


def _digest(item: KnowledgeItem) -> str:
    facts = (item.text, item.directory, item.language, item.confidence, item.provenance.taint)
    return sha256(repr(facts).encode(errors="surrogatepass")).hexdigest()
