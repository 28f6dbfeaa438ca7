"""Documents that were imported of a folder and are not there any more."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Set
from pathlib import Path

from orga.activities.adapters.knowledge.documents import Owned, base_of, key_of
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import StoredItem
from orga.workflows.types.text import clean_text


async def gone_documents(
    store: KnowledgeStore, folder: Path, root: Path, owned: Owned, seen: Set[str]
) -> dict[str, list[str]]:
    """Return the ids of their parts by source. One that is there and was not met (git ignores it now) is not gone.

    Args:
        store: Where they are.
        folder: That has just been imported.
        root: Of the project: what lies below it is called by its path from there.
        owned: Whose they are; what others have is left out.
        seen: The sources that the import has met.

    Raises:
        KnowledgeError: The store cannot be read.
    """
    base = await asyncio.to_thread(base_of, folder, root)

    def may_be_gone(item: StoredItem) -> bool:
        source = item.provenance.source
        is_document = item.key.startswith(key_of(source)) and (item.scope, item.owner) == (owned.scope, owned.owner)
        return is_document and source not in seen and source.startswith("/") == base.startswith("/")

    found = defaultdict[str, list[str]](list)
    async for item in store.items(kinds=("document",), source_prefix=clean_text(base)):
        if may_be_gone(item):
            found[item.provenance.source].append(item.id)
    return await asyncio.to_thread(_of_no_file, found, root)


def _of_no_file(found: dict[str, list[str]], root: Path) -> dict[str, list[str]]:
    return {source: found[source] for source in sorted(found) if not os.path.lexists(root / source)}
