"""`orga knowledge export`: all that a store holds, as lines of JSON."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, TextIO

import typer

from orga.activities.knowledge.exchange import exported
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.client.cli.counting import counted
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.knowledge.opened import opened_store
from orga.client.cli.knowledge.search import Kinds, kinds
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.progress_line import progress_line
from orga.client.server.endpoint import Report
from orga.workflows.types.knowledge import KnowledgeKind
from orga.workflows.types.text import escaped

_REPORTED = 500
"""Items between two reports of progress."""


def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Written for you alone; else to standard output.")
    ] = None,
    *,
    kind: Kinds = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Write every item, of all users and tenants, one a line, as `orga knowledge import` takes them.

    Of a damaged store what can be read is written, and the exit code is 6.

    Example: orga knowledge export backup.jsonl

    Example: orga knowledge export --kind fact | grep acme
    """
    wanted = kinds(kind) if kind else ()
    return completed(_to_stdout(wanted, config) if file is None else _to_file(file, wanted, config, as_json=json))


async def _to_stdout(wanted: tuple[KnowledgeKind, ...], config: Path | None) -> int:
    async with opened_store(config) as here:
        async for line in exported(here.store, kinds=wanted):
            result(escaped(line))
    return 0


async def _to_file(path: Path, wanted: tuple[KnowledgeKind, ...], config: Path | None, *, as_json: bool) -> int:
    async with opened_store(config) as here, _replace(path) as file:
        with progress_line() as report:
            count = await _write(here.store, wanted, file, report)
    if as_json:
        json_result({"file": str(path), "items": count})
    else:
        result(f"{counted(count, 'item')} written to {path}")
    return 0


async def _write(store: KnowledgeStore, wanted: tuple[KnowledgeKind, ...], file: TextIO, report: Report) -> int:
    count = -1
    try:
        async for line in exported(store, kinds=wanted):
            file.write(f"{line}\n")
            count += 1
            if count % _REPORTED == 0:
                report(f"{count:,} items")
    except KnowledgeError as error:
        note(f"{max(count, 0):,} items could be read and are written")
        raise _Partial(str(error), kind=error.kind) from None
    return count


class _Partial(KnowledgeError):
    """Not all could be read."""


@asynccontextmanager
async def _replace(path: Path) -> AsyncGenerator[TextIO]:
    """Yield a file that takes the place of the one named once it is whole, or has all that could be read."""
    beside = path.with_name(f".{path.name}.part")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                try:
                    yield file
                except _Partial:
                    beside.replace(path)
                    raise
            beside.replace(path)
        finally:
            with suppress(OSError):
                beside.unlink()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
