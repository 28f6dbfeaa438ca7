"""Exports and imports knowledge as lines of JSON, in bounded memory.

The first line names the format. Each other line is an item. A repeated import, even after a kill, changes no item that
is already there.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, TextIO

from pydantic import ValidationError

from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore, Progress, batches
from orga.workflows.types.json_text import as_object
from orga.workflows.types.knowledge import KnowledgeItem, KnowledgeKind, StoredItem

FORMAT = "orga-knowledge"
VERSION = 1
MAX_LINE_CHARS = 2_000_000
"""Characters of one line."""


async def export_lines(store: KnowledgeStore, *, kinds: Sequence[KnowledgeKind] = ()) -> AsyncIterator[str]:
    """Yield the lines without line ends. Raise KnowledgeError if the store cannot be read."""
    yield json.dumps({"format": FORMAT, "version": VERSION})
    async for item in store.items(kinds=kinds):
        yield item.model_dump_json(exclude_defaults=True)


async def import_items(
    store: KnowledgeStore, items: Iterable[KnowledgeItem], progress: Progress, *, total: int = 0
) -> Counter[str]:
    """Store items in batches, each in one transaction, and return how many were added, updated or left unchanged.

    `progress` is called after each batch. If `total` is 0, the number of items so far is reported as the total. The
    error of a batch states how many items were stored before it.
    """
    done = Counter(added=0, updated=0, unchanged=0)
    for batch in batches(items):
        try:
            stored = await store.store(batch)
        except KnowledgeError as error:
            raise KnowledgeError(
                f"{error} ({done.total():,} items were imported before; import again to go on)",
                kind=error.kind,
                retryable=error.retryable,
            ) from error
        done.update(each.change for each in stored)
        progress(done.total(), max(done.total(), total))
    return done


def file_lines(file: TextIO) -> Iterator[str]:
    """Yield a file's lines. A too long one comes in pieces. Raise KnowledgeError if the file is not UTF-8."""
    try:
        while line := file.readline(MAX_LINE_CHARS + 1):
            yield line
    except UnicodeDecodeError as error:
        raise KnowledgeError(
            f"the file cannot be imported: it is no UTF-8 ({error.reason})", kind="InvalidItem"
        ) from error


def read_items(lines: Iterable[str]) -> Iterator[KnowledgeItem]:
    """Yield the items of an export, or of lines that people wrote without the first line of an export.

    Raise KnowledgeError for a line that is no item. The message has its number.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if len(line) > MAX_LINE_CHARS:
            raise _line_error(number, f"it has more than {MAX_LINE_CHARS:,} characters")
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _line_error(number, f"it is no JSON ({error}); the file may have been cut short") from error
        named = as_object(value)
        if number == 1 and "format" in named:
            _require_version(named)
            continue
        kind = StoredItem if "stored_at" in named else KnowledgeItem
        try:
            item = kind.model_validate_json(line, extra="forbid")
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the line"
            raise _line_error(number, f"{place}: {first['msg']}") from error
        yield item


def _require_version(first: dict[str, object]) -> None:
    if first.get("format") != FORMAT:
        raise _line_error(1, f"its format is {first['format']!r}, not {FORMAT!r}")
    if first.get("version") != VERSION:
        raise KnowledgeError(
            f"this export has version {first.get('version')!r}, and this version of orga reads {VERSION}; upgrade orga",
            kind="NewerSchema",
        )


def _line_error(number: int, what: str) -> KnowledgeError:
    return KnowledgeError(f"line {number} cannot be imported: {what}", kind="InvalidItem")
