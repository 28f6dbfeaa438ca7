"""Imports documents into a store file by file, and finds those whose files no longer exist."""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from orga.activities.adapters.knowledge.project_files import (
    FileChange,
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
"""Suffixes of documents in a folder. A file that is named directly may have any suffix."""


@dataclass(frozen=True)
class DocumentOwner:
    scope: ScopeLevel
    owner: Reader
    taint: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    root: Path
    path: str
    """Relative to the root, with `/` between parts."""
    source: str
    """The document's name in the store."""
    directory: str = ""


def find_documents(path: Path, root: Path) -> Iterator[Document]:
    """Yield the documents of a folder, or the file itself. Below the root, a source is the path from the root."""
    path = path.resolve()
    prefix, is_folder = source_prefix_for(path, root), path.is_dir()
    names = project_files(path, lambda name: name.lower().endswith(SUFFIXES)) if is_folder else [path.name]
    for name in names:
        source = clean_text(f"{prefix}{name}") if is_folder else prefix
        directory = source.rpartition("/")[0] if path.is_relative_to(root) else ""
        yield Document(path if is_folder else path.parent, name, source, directory)


def source_prefix_for(path: Path, root: Path) -> str:
    """Return the prefix of all sources in a folder, or the source of a file."""
    path = path.resolve()
    source = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    if path.is_dir():
        source = "" if path == root else f"{source}/"
    return clean_text(source)


def document_key(source: str, part: str = "") -> str:
    """Return the key of a document's part. Without `part`, return the prefix of all keys of the document."""
    return f"document:{source}#{part}"


async def import_documents(
    store: KnowledgeStore, path: Path, root: Path, owned: DocumentOwner, progress: Callable[[str], None]
) -> AsyncGenerator[FileChange]:
    """Store the parts of each document, forget removed parts, and yield the result for each document.

    Memory holds one document at a time, and the ids of all parts that were stored before. After an interruption, the
    next import continues. `progress` is called with the name of each document before it is read.
    """
    kept = await stored_parts(store, await asyncio.to_thread(source_prefix_for, path, root), owned)
    for document in find_documents(path, root):
        progress(document.source)
        try:
            items = await _document_parts(document, owned)
        except UnreadableFile as error:
            yield FileChange(document.source, "unreadable", 0, str(error))
            continue
        changes = {stored.change for batch in batches(items) for stored in await store.store(batch)}
        surplus = [item_id for number, item_id in kept.get(document.source, {}).items() if number >= len(items)]
        await forget_ids(store, surplus)  # the parts after the document's new end
        if items or surplus:
            if surplus or changes not in ({"added"}, {"unchanged"}):
                yield FileChange(document.source, "changed", len(items))
            else:
                yield FileChange(document.source, "added" if "added" in changes else "unchanged", len(items))


async def stored_parts(store: KnowledgeStore, prefix: str, owned: DocumentOwner) -> dict[str, dict[int, str]]:
    """Return part ids by source and number, for sources with the prefix. Raise KnowledgeError if reading fails."""
    found = defaultdict[str, dict[int, str]](dict)
    async for item in store.items(kinds=("document",), source_prefix=prefix):
        source = item.provenance.source
        number = item.key.removeprefix(document_key(source))
        if number != item.key and number.isdecimal() and (item.scope, item.owner) == (owned.scope, owned.owner):
            found[source][int(number)] = item.id
    return dict(found)


async def _document_parts(document: Document, owned: DocumentOwner) -> list[KnowledgeItem]:
    if "\\" in document.directory or len(document.source) > 900:
        raise UnreadableFile("its path has a backslash, or more than 900 characters")
    data = await asyncio.to_thread(read_project_bytes, document.root, document.path, MAX_BYTES)
    texts = await _page_parts(data) if data.startswith(PDF_SIGNATURE) else await asyncio.to_thread(_text_parts, data)
    return [
        KnowledgeItem(
            kind="document",
            text=text,
            scope=owned.scope,
            owner=owned.owner,
            key=document_key(document.source, f"{number:06}"),
            directory=document.directory,
            provenance=Provenance(source=document.source, taint=owned.taint),
        )
        for number, text in enumerate(texts)
    ]


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


async def missing_documents(
    store: KnowledgeStore, folder: Path, root: Path, owned: DocumentOwner, seen: Set[str]
) -> dict[str, list[str]]:
    """Return the part ids of documents whose files are gone, by source. A file that git ignores now is not gone.

    `seen` are the sources that the import has found. Documents of other owners are left out.
    """
    base = await asyncio.to_thread(source_prefix_for, folder, root)
    is_outside = base.startswith("/")  # an empty base is a prefix of the sources outside of the root, too
    found = {
        source: list(parts.values())
        for source, parts in (await stored_parts(store, base, owned)).items()
        if source not in seen and source.startswith("/") == is_outside
    }

    def without_files() -> dict[str, list[str]]:
        return {source: found[source] for source in sorted(found) if not os.path.lexists(root / source)}

    return await asyncio.to_thread(without_files)
