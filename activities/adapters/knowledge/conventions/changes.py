"""Converts convention files to items, and updates the conventions of a project in a store."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Literal

from orga.activities.adapters.knowledge.conventions.readers import (
    ConventionRule,
    FileReader,
    convention_directory,
    find_reader,
)
from orga.activities.adapters.knowledge.project_files import UnreadableFile, project_files, read_project_file
from orga.activities.knowledge.erasing import forget_ids
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore, Progress, batches
from orga.workflows.types.knowledge import KnowledgeItem, Provenance, Reader, ScopeLevel, StoredItem
from orga.workflows.types.text import clean_text

MAX_BYTES = 256 * 1024
"""Bytes of a file. People keep no conventions in longer files."""
MAX_ITEMS = 300
"""Conventions of one file."""

MAX_PATH_CHARS = 700

KEY_PREFIX = "convention"


@dataclass(frozen=True)
class ConventionTarget:
    """The place and the owner of a project's conventions in a store."""

    project: str
    """The project's name. A directory of a store holds conventions of one project only."""
    at: str
    """The directory of the project's root in the store. Empty for the store's root."""
    scope: ScopeLevel
    owner: Reader
    taint: tuple[str, ...] = ()
    """The taint of the conventions."""

    def stored_path(self, path: str) -> str:
        """Return the path in the store of a path from the project's root."""
        return clean_text("/".join(filter(None, (self.at, path))))

    def key(self, path: str, number: int) -> str:
        """Return the key of a file's convention."""
        return f"{KEY_PREFIX}:{self.project}:{self.stored_path(path)}#{number:03}"


def convention_items(root: Path, path: str, place: ConventionTarget) -> list[KnowledgeItem]:
    """Return the conventions of a file, in order.

    At the root, a language's conventions hold for that language everywhere. Below it they hold for their folder only.

    Raises:
        UnreadableFile: It cannot be read, or is not what its name promises. The text gives the reason.
    """
    kind = find_reader(path)
    assert kind is not None, path
    directory = place.stored_path(convention_directory(path))
    if "\\" in directory or len(path) > MAX_PATH_CHARS:
        raise UnreadableFile(f"no path of at most {MAX_PATH_CHARS} characters without a backslash")
    return [
        KnowledgeItem(
            kind="convention",
            text=rule.text,
            scope=place.scope,
            owner=place.owner,
            key=place.key(path, number),
            directory=directory,
            language="" if directory else rule.language,
            confidence=kind.confidence,
            provenance=Provenance(source=place.stored_path(path), taint=place.taint),
        )
        for number, rule in enumerate(_bounded_rules(read_project_file(root, path, MAX_BYTES), kind))
    ]


def _bounded_rules(text: str, kind: FileReader) -> list[ConventionRule]:
    try:
        return list(islice(kind.rules(text), MAX_ITEMS))
    except RecursionError:
        raise UnreadableFile("it is nested too deeply") from None


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
