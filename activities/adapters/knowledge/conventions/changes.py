"""Converts convention files to knowledge items, and updates the conventions of a project in a store."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Literal

from orga.activities.adapters.knowledge.conventions.readers import convention_directory, find_reader
from orga.activities.adapters.knowledge.project_files import (
    FileChange,
    UnreadableFile,
    project_files,
    read_project_file,
)
from orga.activities.knowledge.identity import forget_ids
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore, Progress, batches
from orga.workflows.types.knowledge import KnowledgeItem, Provenance, Reader, ScopeLevel
from orga.workflows.types.text import clean_text

MAX_BYTES = 256 * 1024
"""Bytes of a convention file. A longer one is probably something else."""
MAX_ITEMS = 300
"""Conventions of one file."""

MAX_PATH_CHARS = 700

KEY_PREFIX = "convention"


@dataclass(frozen=True)
class ConventionTarget:
    """The location and the owner of a project's conventions in a store."""

    project: str
    """The project's name. A directory of a store has the conventions of only one project."""
    at: str
    """The directory in the store under which the project's conventions are. Empty for the store's root."""
    scope: ScopeLevel
    owner: Reader
    taint: tuple[str, ...] = ()

    def stored_path(self, path: str) -> str:
        """Return the path in the store for a path from the project's root."""
        return clean_text("/".join(filter(None, (self.at, path))))

    def key(self, path: str, number: int) -> str:
        return f"{KEY_PREFIX}:{self.project}:{self.stored_path(path)}#{number:03}"


def convention_items(root: Path, path: str, target: ConventionTarget) -> list[KnowledgeItem]:
    """Return the conventions of a file, in order. Raise UnreadableFile if its path or its content cannot be used.

    In the root folder, a convention for a language applies to that language everywhere. In any other folder,
    it applies only within that folder.
    """
    reader = find_reader(path)
    assert reader is not None, path
    directory = target.stored_path(convention_directory(path))
    if "\\" in directory or len(path) > MAX_PATH_CHARS:
        raise UnreadableFile(f"its path has a backslash, or more than {MAX_PATH_CHARS} characters")
    try:
        rules = list(islice(reader.rules(read_project_file(root, path, MAX_BYTES)), MAX_ITEMS))
    except RecursionError:
        raise UnreadableFile("it is nested too deeply") from None
    return [
        KnowledgeItem(
            kind="convention",
            text=rule.text,
            scope=target.scope,
            owner=target.owner,
            key=target.key(path, number),
            directory=directory,
            language="" if directory else rule.language,
            confidence=reader.confidence,
            provenance=Provenance(source=target.stored_path(path), taint=target.taint),
        )
        for number, rule in enumerate(rules)
    ]


_KeptConventions = dict[str, tuple[str, str]]
"""The stored conventions of a file: id and digest, by key."""


async def _replace_conventions(
    store: KnowledgeStore, kept: _KeptConventions, items: Sequence[KnowledgeItem]
) -> Literal["added", "changed", "unchanged"]:
    """Store new and changed items, forget the rest, and return what changed. An interrupted call can be repeated."""
    digests = {item.key: _item_digest(item) for item in items}
    before = {key: digest for key, (_, digest) in kept.items()}
    if digests == before:
        return "unchanged"
    for batch in batches(item for item in items if before.get(item.key) != digests[item.key]):
        await store.store(batch)
    await forget_ids(store, [item_id for key, (item_id, _) in kept.items() if key not in digests])
    return "changed" if kept else "added"


def _item_digest(item: KnowledgeItem) -> str:
    facts = (item.text, item.directory, item.language, item.confidence, item.provenance.taint)
    return sha256(repr(facts).encode(errors="surrogatepass")).hexdigest()


MAX_FILES = 2_000

_FOREIGN_FOLDERS = frozenset({"vendor", "third_party", "node_modules", "site-packages"})
"""Folders of other projects' code. Their conventions are not this project's, even if git tracks them."""


class TooManyFiles(ValueError):
    """The folder has too many files with conventions for one project."""


def convention_files(root: Path) -> list[str]:
    """Return the sorted paths of files with conventions. Raise TooManyFiles if the root is probably no project."""
    found = list(
        project_files(root, lambda path: find_reader(path) is not None and _FOREIGN_FOLDERS.isdisjoint(path.split("/")))
    )
    if len(found) > MAX_FILES:
        raise TooManyFiles(f"{root} has more than {MAX_FILES:,} files with conventions; name the folder of a project")
    return sorted(found)


async def import_conventions(
    store: KnowledgeStore, root: Path, target: ConventionTarget, progress: Progress
) -> AsyncGenerator[FileChange]:
    """Update the conventions of a project's files, one file at a time, and yield the result for each.

    After an interruption, the next import continues. Raise TooManyFiles if the root is probably no project, and
    KnowledgeError also if the store has another project's conventions in that directory.
    """
    paths = await asyncio.to_thread(convention_files, root)
    before = await _read_stored(store, target)
    for number, path in enumerate(paths):
        progress(number, len(paths))
        kept = before.pop(target.stored_path(path), {})
        try:
            items = await asyncio.to_thread(convention_items, root, path, target)
        except UnreadableFile as error:
            yield FileChange(target.stored_path(path), "unreadable", len(kept), str(error))
            continue
        if items or kept:
            yield FileChange(target.stored_path(path), await _replace_conventions(store, kept, items), len(items))
    for path, kept in before.items():
        await forget_ids(store, [item_id for item_id, _ in kept.values()])
        yield FileChange(path, "removed", len(kept))
    progress(len(paths), len(paths))


async def _read_stored(store: KnowledgeStore, target: ConventionTarget) -> dict[str, _KeptConventions]:
    """Return the stored conventions of the target's project, by path in the store."""
    found = defaultdict[str, _KeptConventions](dict)
    prefix = target.stored_path("") + "/" if target.at else ""
    async for item in store.items(kinds=("convention",), source_prefix=prefix):
        kind, _, rest = item.key.partition(":")
        if kind != KEY_PREFIX or (item.scope, item.owner) != (target.scope, target.owner):
            continue
        project = rest.partition(":")[0]
        if project == target.project:
            found[item.provenance.source][item.key] = item.id, _item_digest(item)
        elif item.directory == target.at:
            where = f"in {target.at}/" if target.at else "at the root"
            raise KnowledgeError(
                f"the conventions {where} belong to the project {project!r}, not to {target.project!r}: choose another "
                f"directory with --at, or pass --project {project} if it is the same project",
                kind="OtherProject",
            )
    return found
