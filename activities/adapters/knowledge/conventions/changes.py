"""The conventions of a project brought up to date in a store: what is new, what has changed, what is gone."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from orga.activities.adapters.knowledge.conventions.files import KEY, Place, items_of
from orga.activities.adapters.knowledge.conventions.listing import convention_files
from orga.activities.adapters.knowledge.conventions.settings import Unreadable
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore, Progress
from orga.workflows.types.knowledge import Erasure, KnowledgeItem

Change = Literal["added", "changed", "unchanged", "removed", "unreadable"]


@dataclass(frozen=True)
class FileChange:
    """What became of one file's conventions."""

    path: str
    """As the store names it."""
    change: Change
    items: int
    """That the store has of it now; of a removed file, those that went."""
    detail: str = ""
    """Why it cannot be read: what was stored of it before stays."""


@dataclass(frozen=True)
class _Kept:
    """What a store has of one file."""

    ids: dict[str, str]
    """By key."""
    digests: dict[str, str]
    """By key."""


async def import_conventions(
    store: KnowledgeStore, root: Path, place: Place, progress: Progress
) -> AsyncIterator[FileChange]:
    """Bring the conventions of a project's files up to date, file by file, and yield what became of each.

    Each file is stored at once; stopped in the middle, the next import goes on.

    Raises:
        TooMany: The root is no project.
        KnowledgeError: The store cannot do it, or has another project's conventions in that place.
    """
    paths = await asyncio.to_thread(convention_files, root)
    before = await _kept(store, place)
    for number, path in enumerate(paths):
        progress(number, len(paths))
        kept = before.pop(place.inside(path), _Kept({}, {}))
        try:
            items = await asyncio.to_thread(items_of, root, path, place)
        except Unreadable as error:
            yield FileChange(place.inside(path), "unreadable", len(kept.ids), str(error))
            continue
        if items or kept.ids:
            yield FileChange(place.inside(path), await _replaced(store, kept, items), len(items))
    for path, kept in before.items():
        await store.forget(Erasure(ids=tuple(kept.ids.values())))
        yield FileChange(path, "removed", len(kept.ids))
    progress(len(paths), len(paths))


async def _replaced(store: KnowledgeStore, kept: _Kept, items: Sequence[KnowledgeItem]) -> Change:
    now = {item.key: _digest(item) for item in items}
    if now == kept.digests:
        return "unchanged"
    await store.store(items)
    if gone := tuple(item_id for key, item_id in kept.ids.items() if key not in now):
        await store.forget(Erasure(ids=gone))
    return "changed" if kept.ids else "added"


async def _kept(store: KnowledgeStore, place: Place) -> dict[str, _Kept]:
    """Return what the store has of the project's files below the place, by their names there."""
    found: dict[str, _Kept] = defaultdict(lambda: _Kept({}, {}))
    prefix = place.inside("") + "/" if place.at else ""
    async for item in store.items(kinds=("convention",), source_prefix=prefix):
        kind, _, rest = item.key.partition(":")
        if kind != KEY or (item.scope, item.owner) != (place.scope, place.owner):
            continue
        project = rest.partition(":")[0]
        if project == place.project:
            file = found[item.provenance.source]
            file.ids[item.key] = item.id
            file.digests[item.key] = _digest(item)
        elif item.directory == place.at:
            raise KnowledgeError(_taken(project, place), kind="OtherProject")
    return found


def _taken(project: str, place: Place) -> str:
    where = f"in {place.at}/" if place.at else "at the root"
    return (
        f"the conventions {where} are those of the project {project!r}, these are of {place.project!r}: put them into "
        f"a directory of their own with --at, or say with --project {project} that it is the same project"
    )


def _digest(item: KnowledgeItem) -> str:
    facts = (item.text, item.directory, item.language, item.confidence)
    return sha256(repr(facts).encode(errors="surrogatepass")).hexdigest()
