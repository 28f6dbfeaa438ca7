"""Documents in a store: the parts of each file, brought up to date file by file."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orga.activities.adapters.knowledge.project_files import project_files
from orga.activities.adapters.knowledge.text_file import Unreadable, text_of
from orga.activities.knowledge.batches import batches
from orga.activities.knowledge.chunks import chunks
from orga.activities.knowledge.erasing import forget_ids
from orga.activities.knowledge.identity import item_id
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import KnowledgeItem, Provenance, Reader, ScopeLevel
from orga.workflows.types.text import clean_text

MAX_BYTES = 16 * 1024 * 1024
"""Of a document."""

SUFFIXES = (".md", ".markdown", ".txt", ".rst", ".adoc", ".org", ".text")
"""What is taken for a document in a folder; a file that is named may end as it likes."""


@dataclass(frozen=True)
class Owned:
    """Whose documents become, and what they are marked with."""

    scope: ScopeLevel
    owner: Reader
    taint: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """A file to be read."""

    root: Path
    path: str
    """From the root, `/` between parts."""
    source: str
    """What it is called in the store."""
    directory: str = ""


@dataclass(frozen=True)
class Fate:
    """What became of one document."""

    source: str
    change: Literal["added", "changed", "unchanged", "unreadable"]
    parts: int
    detail: str = ""
    """Why it cannot be read: what was stored of it before stays."""


def documents(path: Path, root: Path) -> Iterator[Document]:
    """Yield the documents of a folder, or the file itself: below the root they are called by their path from there."""
    path = path.resolve()
    is_inside = path.is_relative_to(root)
    if not path.is_dir():
        source = clean_text(path.relative_to(root).as_posix() if is_inside else str(path))
        yield Document(path.parent, path.name, source, source.rpartition("/")[0] if is_inside else "")
        return
    base = base_of(path, root)
    for each in project_files(path, lambda name: name.lower().endswith(SUFFIXES)):
        source = clean_text(f"{base}{each}")
        yield Document(path, each, source, source.rpartition("/")[0] if is_inside else "")


def base_of(folder: Path, root: Path) -> str:
    """Return what the documents of a folder are called by, ahead of their path in it."""
    folder = folder.resolve()
    if not folder.is_relative_to(root):
        return f"{folder}/"
    return "" if folder == root else f"{folder.relative_to(root).as_posix()}/"


def key_of(source: str, part: str = "") -> str:
    """Return the key of a part of a document, or what all of its keys begin with."""
    return f"document:{source}#{part}"


async def import_documents(
    store: KnowledgeStore, found: Iterable[Document], owned: Owned, progress: Callable[[str], None]
) -> AsyncGenerator[Fate]:
    """Store the parts of each document, and yield what became of it; what it no longer says is forgotten.

    One document at a time is in memory. Stopped in the middle, the next import goes on.

    Args:
        store: Where to.
        found: Read one after another.
        owned: Whose they become.
        progress: Told the name of each document that is begun.

    Raises:
        KnowledgeError: The store cannot do it.
    """
    for document in found:
        progress(document.source)
        try:
            items = await asyncio.to_thread(_parts, document, owned)
        except Unreadable as error:
            yield Fate(document.source, "unreadable", 0, str(error))
            continue
        changes = await _store(store, items)
        gone = await _shorten(store, document, owned, len(items))
        if items or gone:
            yield Fate(document.source, _change(changes, gone), len(items))


async def _store(store: KnowledgeStore, items: Sequence[KnowledgeItem]) -> set[str]:
    changes = set[str]()
    for batch in batches(items):
        changes |= {stored.change for stored in await store.store(batch)}
    return changes


async def _shorten(store: KnowledgeStore, document: Document, owned: Owned, length: int) -> int:
    """Forget the parts behind the last one, and return how many went; from the end, so that none is left apart."""
    beyond = list[str]()
    while await store.get(each := item_id(_part(document, owned, length + len(beyond), "-"))) is not None:
        beyond.append(each)
    await forget_ids(store, beyond[::-1])
    return len(beyond)


def _change(changes: Set[str], gone: int) -> Literal["added", "changed", "unchanged"]:
    if gone or len(changes) != 1:
        return "changed"
    return "added" if changes == {"added"} else "unchanged" if changes == {"unchanged"} else "changed"


def _parts(document: Document, owned: Owned) -> list[KnowledgeItem]:
    if "\\" in document.directory or len(document.source) > 900:
        raise Unreadable("its path has a backslash, or more than 900 characters")
    return [
        _part(document, owned, part.number, part.text)
        for part in chunks(text_of(document.root, document.path, MAX_BYTES))
    ]


def _part(document: Document, owned: Owned, number: int, text: str) -> KnowledgeItem:
    return KnowledgeItem(
        kind="document",
        text=text,
        scope=owned.scope,
        owner=owned.owner,
        key=key_of(document.source, f"{number:06}"),
        directory=document.directory,
        provenance=Provenance(source=document.source, taint=owned.taint),
    )
