"""`orga knowledge import`: documents in parts, and the lines of an export."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from orga.activities.adapters.knowledge.documents import SUFFIXES, Fate, Owned, import_documents
from orga.activities.adapters.knowledge.gone_documents import gone_documents
from orga.activities.knowledge.erasing import forget_ids
from orga.activities.knowledge.exchange import file_lines, import_items, read_lines
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.client.cli.counting import counted
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.knowledge.opened import opened_store
from orga.client.cli.knowledge.owners import UNTRUSTED, Agent, Scope, Tenant, Untrusted, User, owned
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.progress_line import progress_line
from orga.client.cli.terminal_text import on_one_line
from orga.client.server.endpoint import Report

LINES = ".jsonl"
_PATH_CHARS = 300


@dataclass
class _Done:
    """What has been imported so far."""

    fates: Counter[str] = field(default_factory=Counter[str])
    parts: int = 0
    unreadable: list[Fate] = field(default_factory=list[Fate])
    gone: list[str] = field(default_factory=list[str])
    """Documents that their folders have no more."""
    forgotten: list[str] = field(default_factory=list[str])
    """Such ones, where they are to be forgotten."""
    items: Counter[str] = field(default_factory=Counter[str])
    """Of exports that were imported whole."""
    items_so_far: int = 0
    """Of the one that is being imported."""

    def keep(self, fate: Fate) -> None:
        """Take in what became of a document."""
        self.fates[fate.change] += 1
        self.parts += fate.parts
        if fate.change == "unreadable":
            self.unreadable.append(fate)

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts."""
        counts = {change: self.fates[change] for change in ("added", "changed", "unchanged")}
        unreadable = {each.source: each.detail for each in self.unreadable}
        items = {change: self.items[change] for change in ("added", "updated", "unchanged")}
        lists = {"unreadable": unreadable, "gone": self.gone, "forgotten": self.forgotten}
        return {"documents": {**counts, "parts": self.parts, **lists}, "items": items}

    def told(self) -> list[str]:
        """Return it for people."""
        parts = counted(self.parts, "part")
        fates = self.fates + Counter(gone=len(self.gone), forgotten=len(self.forgotten))
        told = [f"documents: {_counted(fates)} ({parts})"] if fates else []
        told += [f"items: {_counted(self.items)}"] if self.items else []
        return told + ([f"items so far: {self.items_so_far:,}"] if self.items_so_far else [])


def _counted(changes: Counter[str]) -> str:
    return ", ".join(f"{count:,} {change}" for change, count in changes.items() if count)


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATHS", help=f"Documents, folders of them, or {LINES} files of an export."),
    ],
    *,
    scope: Scope = None,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    untrusted: Untrusted = False,
    forget_gone: Annotated[
        bool, typer.Option("--forget-gone", help="Forget the documents that the folders have no more.")
    ] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Import documents, cut into parts, and what `orga knowledge export` wrote.

    What is there already is not stored twice, and what a document no longer says is forgotten: stopped at any time,
    the same command goes on. Of a folder the text files that git does not ignore are read; what was stored of it and
    is there no more is named.

    Example: orga knowledge import docs README.md --tenant shop

    Example: orga knowledge import backup.jsonl
    """
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise UsageError(f"{missing[0]}: there is no such file or folder")
    level, owner = owned(scope, user=user, tenant=tenant, agent=agent)
    says_whose = any(option is not None for option in (scope, user, tenant, agent))
    if says_whose and any(path.suffix == LINES for path in paths):
        raise UsageError(f"the lines of a {LINES} file say themselves whose they are; import it without these options")
    taint = (UNTRUSTED,) if untrusted else ()
    found = [(path, path.is_dir()) for path in paths]
    whose = Owned(level, owner, taint)
    return completed(_import(found, whose, config, forgets_gone=forget_gone, as_json=json))


async def _import(
    paths: Sequence[tuple[Path, bool]], whose: Owned, config: Path | None, *, forgets_gone: bool, as_json: bool
) -> int:
    done = _Done()
    async with opened_store(config) as here:
        try:
            with progress_line() as report:
                importing = _Import(here.store, here.root, whose, report, done)
                for path, is_folder in paths:
                    if path.suffix == LINES and not is_folder:
                        await importing.lines(path)
                    else:
                        await importing.documents(path, is_folder=is_folder, forgets_gone=forgets_gone)
        except asyncio.CancelledError:
            note(*done.told(), "stopped; what was imported stays, and the same command goes on from here")
            raise
        _tell(done, as_json=as_json)
        await here.store.purge()  # of nothing too: it may be what was replaced before and could not be wiped then
    return 0


def _tell(done: _Done, *, as_json: bool) -> None:
    if as_json:
        json_result(done.as_json())
        return
    for each in done.unreadable:
        note(f"not read: {on_one_line(each.source, _PATH_CHARS)}: {on_one_line(each.detail, _PATH_CHARS)}")
    note(*(f"gone, forgotten: {on_one_line(source, _PATH_CHARS)}" for source in done.forgotten))
    note(*(f"gone, and still stored: {on_one_line(source, _PATH_CHARS)}" for source in done.gone))
    if done.gone:
        note("what is gone is forgotten by the same command with --forget-gone, one of them by: forget --source")
    result(*(done.told() or [f"nothing to import: of folders, {' '.join(SUFFIXES)} files are read"]))


@dataclass
class _Import:
    """An import at work: into which store, whose its documents become, how all of it is marked, and what is done."""

    store: KnowledgeStore
    root: Path
    whose: Owned
    report: Report
    done: _Done
    _begun: int = 0

    async def documents(self, path: Path, *, is_folder: bool, forgets_gone: bool) -> None:
        """Import a document, or those of a folder, and see which of it are gone."""
        seen = set[str]()
        async with aclosing(import_documents(self.store, path, self.root, self.whose, self._begin)) as fates:
            async for fate in fates:
                if fate.change == "unreadable" and not is_folder:
                    raise UsageError(f"{path} cannot be imported: {fate.detail}")
                self.done.keep(fate)
                seen.add(fate.source)
        gone = await gone_documents(self.store, path, self.root, self.whose, seen) if is_folder else {}
        (self.done.forgotten if forgets_gone else self.done.gone).extend(gone)
        if forgets_gone:
            await forget_ids(self.store, [item_id for ids in gone.values() for item_id in ids])

    async def lines(self, path: Path) -> None:
        """Import an export."""
        with path.open("rb") as data, TextIOWrapper(data, encoding="utf-8") as file:
            size = max(os.fstat(data.fileno()).st_size, 1)

            def stored(count: int, _of: int) -> None:
                self.done.items_so_far = count
                self.report(f"{count:,} items, {min(100 * data.tell() // size, 100)} % of {path.name}")

            try:
                items = (item.with_taint(self.whose.taint) for item in read_lines(file_lines(file)))
                imported = await import_items(self.store, items, stored)
            except KnowledgeError as error:
                raise KnowledgeError(f"{path}: {error}", kind=error.kind, retryable=error.retryable) from None
        self.done.items.update(asdict(imported))
        self.done.items_so_far = 0

    def _begin(self, source: str) -> None:
        self._begun += 1
        self.report(f"document {self._begun:,}, {self.done.parts:,} parts so far: {source}")
