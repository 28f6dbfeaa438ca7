"""Updates the conventions of a project in a store: adds new ones, updates changed ones, removes the rest."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal

from orga.activities.adapters.knowledge.conventions.files import KEY_PREFIX, ConventionTarget, convention_items
from orga.activities.adapters.knowledge.conventions.readers import find_reader
from orga.activities.adapters.knowledge.project_files import UnreadableFile, project_files
from orga.activities.knowledge.batches import batches
from orga.activities.knowledge.erasing import forget_ids
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore, Progress
from orga.workflows.types.knowledge import KnowledgeItem, StoredItem

Change = Literal["added", "changed", "unchanged"]


@dataclass
class StoredConventions:
    """The stored conventions of a source."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    """Ids by key."""
    digests: dict[str, str] = field(default_factory=dict[str, str])
    """Digests by key."""

    def add_item(self, item: StoredItem) -> None:
        """Add one item of the source."""
        self.ids[item.key] = item.id
        self.digests[item.key] = _item_digest(item)


async def replace_conventions(store: KnowledgeStore, kept: StoredConventions, items: Sequence[KnowledgeItem]) -> Change:
    """Store new and changed items, forget the rest, and return what changed.

    After an interruption, the next call continues.

    Args:
        store: The store to update.
        kept: All stored items of the source.
        items: All items that the source has now, each with its own key.

    Raises:
        KnowledgeError: The update is incomplete.
    """
    now = {item.key: _item_digest(item) for item in items}
    if now == kept.digests:
        return "unchanged"
    news = [item for item in items if kept.digests.get(item.key) != now[item.key]]
    for batch in batches(news):
        await store.store(batch)
    await forget_ids(store, [item_id for key, item_id in kept.ids.items() if key not in now])
    return "changed" if kept.ids else "added"


def _item_digest(item: KnowledgeItem) -> str:
    facts = (item.text, item.directory, item.language, item.confidence, item.provenance.taint)
    return sha256(repr(facts).encode(errors="surrogatepass")).hexdigest()


MAX_FILES = 2_000

_FOREIGN_FOLDERS = frozenset({"vendor", "third_party", "node_modules", "site-packages"})
"""Folders of other projects' code. Their conventions are not this project's, even if git tracks them."""

FileOutcome = Change | Literal["removed", "unreadable"]


@dataclass(frozen=True)
class FileChange:
    """The result for one file's conventions."""

    path: str
    """The file's path in the store."""
    change: FileOutcome
    items: int
    """Number of stored items of the file. For a removed file, the number of removed items."""
    detail: str = ""
    """The reason why it cannot be read. Its stored conventions stay."""


class TooManyFiles(ValueError):
    """More files with conventions than one project has."""


def convention_files(root: Path) -> list[str]:
    """Return the files of a project that contain conventions, as sorted paths from the root.

    Raises:
        TooManyFiles: The root is no project.
    """
    found = list(
        project_files(root, lambda path: find_reader(path) is not None and _FOREIGN_FOLDERS.isdisjoint(path.split("/")))
    )
    if len(found) > MAX_FILES:
        raise TooManyFiles(
            f"more than {MAX_FILES:,} files with conventions lie in {root}; name the folder of a project"
        )
    return sorted(found)


async def import_conventions(
    store: KnowledgeStore, root: Path, place: ConventionTarget, progress: Progress
) -> AsyncGenerator[FileChange]:
    """Update the conventions of a project's files, one file at a time, and yield the result for each.

    After an interruption, the next import continues.

    Raises:
        TooManyFiles: The root is no project.
        KnowledgeError: The store failed, or it has another project's conventions in that place.
    """
    paths = await asyncio.to_thread(convention_files, root)
    before = await _read_stored(store, place)
    for number, path in enumerate(paths):
        progress(number, len(paths))
        kept = before.pop(place.stored_path(path), StoredConventions())
        try:
            items = await asyncio.to_thread(convention_items, root, path, place)
        except UnreadableFile as error:
            yield FileChange(place.stored_path(path), "unreadable", len(kept.ids), str(error))
            continue
        if items or kept.ids:
            yield FileChange(place.stored_path(path), await replace_conventions(store, kept, items), len(items))
    for path, kept in before.items():
        await forget_ids(store, list(kept.ids.values()))
        yield FileChange(path, "removed", len(kept.ids))
    progress(len(paths), len(paths))


async def _read_stored(store: KnowledgeStore, place: ConventionTarget) -> dict[str, StoredConventions]:
    """Return the stored conventions of the project's files below the place, by their paths in the store."""
    found: dict[str, StoredConventions] = defaultdict(StoredConventions)
    prefix = place.stored_path("") + "/" if place.at else ""
    async for item in store.items(kinds=("convention",), source_prefix=prefix):
        kind, _, rest = item.key.partition(":")
        if kind != KEY_PREFIX or (item.scope, item.owner) != (place.scope, place.owner):
            continue
        project = rest.partition(":")[0]
        if project == place.project:
            found[item.provenance.source].add_item(item)
        elif item.directory == place.at:
            raise KnowledgeError(_other_project_text(project, place), kind="OtherProject")
    return found


def _other_project_text(project: str, place: ConventionTarget) -> str:
    where = f"in {place.at}/" if place.at else "at the root"
    return (
        f"the conventions {where} are those of the project {project!r}, these are of {place.project!r}: put them into "
        f"a directory of their own with --at, or say with --project {project} that it is the same project"
    )
