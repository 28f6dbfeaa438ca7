"""Imports documents into a store file by file, and finds those whose files no longer exist."""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orga.activities.adapters.knowledge.project_files import (
    UnreadableFile,
    project_files,
    project_text,
    read_project_bytes,
)
from orga.activities.adapters.tools.pdf_text import PDF_SIGNATURE, UnreadablePdf, pdf_text
from orga.activities.knowledge.chunks import chunks
from orga.activities.knowledge.identity import forget_ids
from orga.activities.knowledge.ports import KnowledgeStore, batches
from orga.workflows.types.knowledge import KnowledgeItem, Provenance, Reader, ScopeLevel
from orga.workflows.types.text import clean_text

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of one document."""

SUFFIXES = (".md", ".markdown", ".txt", ".rst", ".adoc", ".org", ".text", ".pdf")
"""Suffixes of documents in a folder. A file that is named itself may have any suffix."""


@dataclass(frozen=True)
class DocumentOwner:
    """The owner and the taint of imported documents."""

    scope: ScopeLevel
    owner: Reader
    taint: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """A file to read."""

    root: Path
    path: str
    """Relative to the root, with `/` between parts."""
    source: str
    """The document's name in the store."""
    directory: str = ""


@dataclass(frozen=True)
class DocumentChange:
    source: str
    change: Literal["added", "changed", "unchanged", "unreadable"]
    parts: int
    detail: str = ""
    """The reason why it cannot be read. Its stored parts stay."""


def find_documents(path: Path, root: Path) -> Iterator[Document]:
    """Yield the documents of a folder, or the file itself. Below the root their source is the path from there."""
    path = path.resolve()
    is_inside = path.is_relative_to(root)
    if not path.is_dir():
        source = source_prefix_for(path, root)
        yield Document(path.parent, path.name, source, source.rpartition("/")[0] if is_inside else "")
        return
    base = source_base(path, root)
    for each in project_files(path, lambda name: name.lower().endswith(SUFFIXES)):
        source = clean_text(f"{base}{each}")
        yield Document(path, each, source, source.rpartition("/")[0] if is_inside else "")


def source_base(folder: Path, root: Path) -> str:
    """Return the prefix of the sources of a folder's documents. Their path within the folder follows."""
    folder = folder.resolve()
    if not folder.is_relative_to(root):
        return f"{folder}/"
    return "" if folder == root else f"{folder.relative_to(root).as_posix()}/"


def source_prefix_for(path: Path, root: Path) -> str:
    """Return the prefix of the sources of a folder's documents, or the source of the file itself."""
    if path.is_dir():
        return clean_text(source_base(path, root))
    path = path.resolve()
    return clean_text(path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path))


def document_key(source: str, part: str = "") -> str:
    """Return the key of a part of a document, or the prefix of all its keys."""
    return f"document:{source}#{part}"


async def import_documents(
    store: KnowledgeStore, path: Path, root: Path, owned: DocumentOwner, progress: Callable[[str], None]
) -> AsyncGenerator[DocumentChange]:
    """Store the parts of each document, forget removed parts, and yield the result for each document.

    Memory holds one document at a time, and the ids of all parts that were stored before. After an interruption, the
    next import continues.

    Args:
        owned: The owner and the taint.
        progress: Called with the name of each document before it is read.

    Raises:
        KnowledgeError: The store failed.
    """
    kept = await stored_parts(store, await asyncio.to_thread(source_prefix_for, path, root), owned)
    for document in find_documents(path, root):
        progress(document.source)
        try:
            items = await _document_parts(document, owned)
        except UnreadableFile as error:
            yield DocumentChange(document.source, "unreadable", 0, str(error))
            continue
        changes = await _store_parts(store, items)
        gone = await _forget_rest(store, kept.get(document.source, {}), len(items))
        if items or gone:
            yield DocumentChange(document.source, _overall_change(changes, gone), len(items))


async def stored_parts(store: KnowledgeStore, prefix: str, owned: DocumentOwner) -> dict[str, dict[int, str]]:
    """Return part ids by source and number, for sources with the prefix. Raise KnowledgeError if reading fails."""
    found = defaultdict[str, dict[int, str]](dict)
    async for item in store.items(kinds=("document",), source_prefix=prefix):
        source = item.provenance.source
        number = item.key.removeprefix(document_key(source))
        if number != item.key and number.isdecimal() and (item.scope, item.owner) == (owned.scope, owned.owner):
            found[source][int(number)] = item.id
    return dict(found)


async def _store_parts(store: KnowledgeStore, items: Sequence[KnowledgeItem]) -> set[str]:
    changes = set[str]()
    for batch in batches(items):
        changes |= {stored.change for stored in await store.store(batch)}
    return changes


async def _forget_rest(store: KnowledgeStore, kept: Mapping[int, str], length: int) -> int:
    """Forget the parts after the document's new end, even if some are missing, and return their number."""
    beyond = [item_id for number, item_id in kept.items() if number >= length]
    await forget_ids(store, beyond)
    return len(beyond)


def _overall_change(changes: Set[str], gone: int) -> Literal["added", "changed", "unchanged"]:
    if gone or len(changes) != 1:
        return "changed"
    return "added" if changes == {"added"} else "unchanged" if changes == {"unchanged"} else "changed"


async def _document_parts(document: Document, owned: DocumentOwner) -> list[KnowledgeItem]:
    if "\\" in document.directory or len(document.source) > 900:
        raise UnreadableFile("its path has a backslash, or more than 900 characters")
    data = await asyncio.to_thread(read_project_bytes, document.root, document.path, MAX_BYTES)
    texts = await _page_parts(data) if data.startswith(PDF_SIGNATURE) else await asyncio.to_thread(_text_parts, data)
    return [_document_part(document, owned, number, text) for number, text in enumerate(texts)]


def _text_parts(data: bytes) -> list[str]:
    return [part.text for part in chunks(project_text(data))]


async def _page_parts(data: bytes) -> list[str]:
    """Return the parts of a PDF. Each begins with the number of its page."""
    try:
        found = await pdf_text(data)
    except UnreadablePdf as error:
        raise UnreadableFile(str(error)) from None
    if len(found.pages) < found.total:
        raise UnreadableFile(f"only {found.note()} can be read; split it")
    pages = enumerate(found.pages, 1)
    return [f"Page {number}\n{part.text}" for number, page in pages for part in chunks(clean_text(page))]


def _document_part(document: Document, owned: DocumentOwner, number: int, text: str) -> KnowledgeItem:
    return KnowledgeItem(
        kind="document",
        text=text,
        scope=owned.scope,
        owner=owned.owner,
        key=document_key(document.source, f"{number:06}"),
        directory=document.directory,
        provenance=Provenance(source=document.source, taint=owned.taint),
    )


async def missing_documents(
    store: KnowledgeStore, folder: Path, root: Path, owned: DocumentOwner, seen: Set[str]
) -> dict[str, list[str]]:
    """Return the part ids of documents without a file, by source. A file that git now ignores still exists.

    Args:
        root: The project's root. Below it, a source is the path from there.
        owned: The owner. Documents of others are left out.
        seen: The sources that the import has found.

    Raises:
        KnowledgeError: The store cannot be read.
    """
    base = await asyncio.to_thread(source_prefix_for, folder, root)
    found = {
        source: list(parts.values())
        for source, parts in (await stored_parts(store, base, owned)).items()
        if source not in seen and source.startswith("/") == base.startswith("/")
    }
    return await asyncio.to_thread(_without_files, found, root)


def _without_files(found: dict[str, list[str]], root: Path) -> dict[str, list[str]]:
    return {source: found[source] for source in sorted(found) if not os.path.lexists(root / source)}
