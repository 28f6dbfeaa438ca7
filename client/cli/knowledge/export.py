"""`orga knowledge export`: write the items of a store to a file or to standard output."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from orga.activities.knowledge.exchange import export_lines
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.knowledge.opened import open_store
from orga.client.cli.knowledge.search import Kinds, parse_kinds
from orga.client.cli.live.terminal import progress_line
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import count_text, write_json, write_note, write_result
from orga.client.server.drafts import Draft, draft_next_to
from orga.client.server.endpoint import Report
from orga.workflows.types.knowledge import KnowledgeKind
from orga.workflows.types.text import escaped_text

_REPORT_INTERVAL = 500
"""Items between two reports of progress."""


def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file, which only you may read. Default: standard output.")
    ] = None,
    *,
    kind: Kinds = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Write all items of all users and tenants, one per line, in the format that `orga knowledge import` reads.

    Only a complete export replaces an existing file. If the store is damaged, the readable items are written (to
    backup.partial.jsonl if backup.jsonl exists), and the exit code is 6.

    Example: orga knowledge export backup.jsonl

    Example: orga knowledge export --kind fact | grep acme
    """
    wanted = parse_kinds(kind) if kind else ()
    return run_interruptible(
        _export_to_stdout(wanted, config) if file is None else _export_to_file(file, wanted, config, as_json=json)
    )


async def _export_to_stdout(wanted: tuple[KnowledgeKind, ...], config: Path | None) -> int:
    async with open_store(config) as here:
        async for line in export_lines(here.store, kinds=wanted):
            write_result(escaped_text(line))
    return 0


async def _export_to_file(path: Path, wanted: tuple[KnowledgeKind, ...], config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        with _export_draft(path) as draft:
            with progress_line() as report:
                count, damage = await _write_items(here.store, wanted, draft.file, report)
            place = path if damage is None else _partial_path(path)
            if count or damage is None:
                draft.move_to(place)
        if damage is not None:
            written = f"written to {place}" if count else "nothing was written"
            write_note(f"{count_text(count, 'item')} could be read; {written}")
            raise damage
    if as_json:
        write_json({"file": str(path), "items": count})
    else:
        write_result(f"{count_text(count, 'item')} written to {path}")
    return 0


def _partial_path(path: Path) -> Path:
    """Return the file for the items of a damaged store. An existing export is kept: it may be the last complete one."""
    return path.with_stem(f"{path.stem}.partial") if os.path.lexists(path) else path


async def _write_items(
    store: KnowledgeStore, wanted: tuple[KnowledgeKind, ...], file: BinaryIO, report: Report
) -> tuple[int, KnowledgeError | None]:
    """Write all items, or the readable ones of a damaged store. Return their number and the error of the damage.

    Raises:
        KnowledgeError: The store could not be read at all. The written part then means nothing.
    """
    count = -1  # the first line is a header
    try:
        async for line in export_lines(store, kinds=wanted):
            file.write(f"{line}\n".encode())
            count += 1
            if count % _REPORT_INTERVAL == 0:
                report(f"{count:,} items")
    except KnowledgeError as error:
        if error.kind != "Corrupt":
            raise
        return max(count, 0), error
    return count, None


@contextmanager
def _export_draft(path: Path) -> Generator[Draft]:
    try:
        with draft_next_to(path) as draft:
            yield draft
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
