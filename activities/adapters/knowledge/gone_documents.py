"""Documents that were imported of a folder and are not there any more."""

import asyncio
import os
from collections.abc import Set
from pathlib import Path

from orga.activities.adapters.knowledge.documents import Owned, kept_parts, prefix_of
from orga.activities.knowledge.ports import KnowledgeStore


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
    base = await asyncio.to_thread(prefix_of, folder, root)
    found = {
        source: list(parts.values())
        for source, parts in (await kept_parts(store, base, owned)).items()
        if source not in seen and source.startswith("/") == base.startswith("/")
    }
    return await asyncio.to_thread(_of_no_file, found, root)


def _of_no_file(found: dict[str, list[str]], root: Path) -> dict[str, list[str]]:
    return {source: found[source] for source in sorted(found) if not os.path.lexists(root / source)}
