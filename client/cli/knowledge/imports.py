"""`orga knowledge import`, `import-conventions` and `add`: put knowledge into the store."""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from orga.activities.adapters.knowledge.conventions.changes import ConventionTarget, import_conventions
from orga.activities.adapters.knowledge.documents import SUFFIXES, DocumentOwner, import_documents, missing_documents
from orga.activities.adapters.knowledge.project_files import FileChange
from orga.activities.knowledge.conventions import directories_above
from orga.activities.knowledge.exchange import file_lines, import_items, read_items
from orga.activities.knowledge.identity import forget_ids
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.client.cli.exit_codes import UsageError, usage_errors
from orga.client.cli.interrupts import Command
from orga.client.cli.knowledge.opened import (
    UNTRUSTED_TAINT,
    Agent,
    Scope,
    Tenant,
    UntrustedOption,
    User,
    open_store,
    scope_and_owner,
)
from orga.client.cli.live.screens import progress_line
from orga.client.cli.options import ConfigFile, Json, login_name, parse_duration, parse_time, text_or_stdin
from orga.client.cli.shown.text import count_text, terminal_line, write_json, write_note, write_result
from orga.client.server.endpoint import Report
from orga.workflows.types.knowledge import DEFAULT_CONFIDENCE, KnowledgeItem, KnowledgeKind, Provenance
from orga.workflows.types.text import clean_text, full_field_text

EXPORT_SUFFIX = ".jsonl"
_PATH_CHARS = 300


@dataclass
class _ImportTotals:
    """The results of an import so far."""

    documents: Counter[str] = field(default_factory=Counter[str])
    """Documents by change."""
    parts: int = 0
    unreadable: list[FileChange] = field(default_factory=list[FileChange])
    gone: list[str] = field(default_factory=list[str])
    """Stored documents that are not in their folders any more and are kept."""
    forgotten: list[str] = field(default_factory=list[str])
    """Stored documents that are not in their folders any more and were erased."""
    items: Counter[str] = field(default_factory=Counter[str])
    """Items by change. They come from exports that were imported completely."""
    items_so_far: int = 0
    """Items of the export that is being imported."""

    def add_document(self, document: FileChange) -> None:
        self.documents[document.change] += 1
        self.parts += document.items
        if document.change == "unreadable":
            self.unreadable.append(document)

    def as_json(self) -> dict[str, Any]:
        counts = {change: self.documents[change] for change in ("added", "changed", "unchanged")}
        unreadable = {document.path: document.detail for document in self.unreadable}
        items = {change: self.items[change] for change in ("added", "updated", "unchanged")}
        lists = {"unreadable": unreadable, "gone": self.gone, "forgotten": self.forgotten}
        return {"documents": {**counts, "parts": self.parts, **lists}, "items": items}

    def lines(self) -> list[str]:
        parts = count_text(self.parts, "part")
        documents = self.documents + Counter(gone=len(self.gone), forgotten=len(self.forgotten))
        lines = [f"documents: {_change_counts_text(documents)} ({parts})"] if documents else []
        lines += [f"items: {_change_counts_text(self.items)}"] if self.items else []
        return lines + ([f"items so far: {self.items_so_far:,}"] if self.items_so_far else [])


def _change_counts_text(changes: Counter[str]) -> str:
    return ", ".join(f"{count:,} {change}" for change, count in changes.items() if count)


async def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATHS", help=f"Documents, folders with documents, or exported {EXPORT_SUFFIX} files."),
    ],
    *,
    scope: Scope = None,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    untrusted: UntrustedOption = False,
    forget_gone: Annotated[
        bool, typer.Option("--forget-gone", help="Erase stored documents that are not in the folders any more.")
    ] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Import documents, which are cut into parts, and files of `orga knowledge export`.

    Nothing is stored twice, and passages that a document no longer contains are erased. You can stop the command at any
    time; the same command continues later. In a folder, text files and PDFs are read unless git ignores them. Stored
    documents that are no longer in the folder are listed.

    Example: orga knowledge import docs README.md --tenant shop

    Example: orga knowledge import backup.jsonl
    """
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise UsageError(f"{missing[0]}: there is no such file or folder")
    level, owner = scope_and_owner(scope, user=user, tenant=tenant, agent=agent)
    names_owner = any(option is not None for option in (scope, user, tenant, agent))
    if names_owner and any(path.suffix == EXPORT_SUFFIX for path in paths):
        raise UsageError(
            f"--scope, --user, --tenant and --agent: the lines of a {EXPORT_SUFFIX} file name their owners. "
            "Import it without these options"
        )
    document_owner = DocumentOwner(level, owner, (UNTRUSTED_TAINT,) if untrusted else ())
    folders = {path for path in paths if path.is_dir()}
    totals = _ImportTotals()
    async with open_store(config) as context:
        try:
            with progress_line() as report:
                importer = _Importer(context.store, context.root, document_owner, report, totals)
                for path in paths:
                    if path.suffix == EXPORT_SUFFIX and path not in folders:
                        await importer.import_export(path)
                    else:
                        await importer.import_path(path, is_folder=path in folders, forgets_gone=forget_gone)
        except asyncio.CancelledError:
            write_note(*totals.lines(), "stopped; imported items stay, and the same command continues from here")
            raise
        _show_totals(totals, as_json=json)
        await context.store.purge()  # even if nothing changed, as an earlier command may not have wiped its items


def _show_totals(totals: _ImportTotals, *, as_json: bool) -> None:
    if as_json:
        write_json(totals.as_json())
        return
    for document in totals.unreadable:
        write_note(
            f"not read: {terminal_line(document.path, _PATH_CHARS)}: {terminal_line(document.detail, _PATH_CHARS)}"
        )
    write_note(*(f"gone, forgotten: {terminal_line(source, _PATH_CHARS)}" for source in totals.forgotten))
    write_note(*(f"gone, and still stored: {terminal_line(source, _PATH_CHARS)}" for source in totals.gone))
    if totals.gone:
        write_note("the same command with --forget-gone erases them; to erase one: orga knowledge forget --source")
    write_result(*(totals.lines() or [f"nothing to import: in folders, {' '.join(SUFFIXES)} files are read"]))


@dataclass
class _Importer:
    store: KnowledgeStore
    root: Path
    owner: DocumentOwner
    """Owner and taint of the imported documents."""
    report: Report
    totals: _ImportTotals
    _documents_begun: int = 0

    async def import_path(self, path: Path, *, is_folder: bool, forgets_gone: bool) -> None:
        """Import a document or a folder, and find stored documents that are not in the folder any more."""
        seen = set[str]()
        changes = import_documents(self.store, path, self.root, self.owner, self._report_document)
        async with aclosing(changes):
            async for document in changes:
                if document.change == "unreadable" and not is_folder:
                    raise UsageError(f"{path} cannot be imported: {document.detail}")
                self.totals.add_document(document)
                seen.add(document.path)
        gone = await missing_documents(self.store, path, self.root, self.owner, seen) if is_folder else {}
        if forgets_gone:
            self.totals.forgotten.extend(gone)
            await forget_ids(self.store, [item_id for ids in gone.values() for item_id in ids])
        else:
            self.totals.gone.extend(gone)

    async def import_export(self, path: Path) -> None:
        with path.open("rb") as data, TextIOWrapper(data, encoding="utf-8") as file:
            size = max(os.fstat(data.fileno()).st_size, 1)

            def report_items(count: int, _total: int) -> None:
                self.totals.items_so_far = count
                self.report(f"{count:,} items, {min(100 * data.tell() // size, 100)} % of {path.name}")

            try:
                items = (item.with_taint(self.owner.taint) for item in read_items(file_lines(file)))
                imported = await import_items(self.store, items, report_items)
            except KnowledgeError as error:
                raise KnowledgeError(f"{path}: {error}", kind=error.kind, retryable=error.retryable) from None
        self.totals.items.update(imported)
        self.totals.items_so_far = 0

    def _report_document(self, source: str) -> None:
        self._documents_begun += 1
        self.report(f"document {self._documents_begun:,}, {self.totals.parts:,} parts so far: {source}")


_PROJECT = re.compile(r"[\w.-]{1,100}")


async def import_project_conventions(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The project's folder, or a folder in it. Default: the current one.")
    ] = Path(),
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The directory that agents use for PATH. Default: PATH's place in the project; outside it, the root.",
            show_default=False,
        ),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The project's name. Default: that of its folder.", show_default=False),
    ] = None,
    scope: Scope = None,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    untrusted: UntrustedOption = False,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Store the conventions of a project. They are read from AGENTS.md, .editorconfig and similar files in all folders.

    Other such files are CLAUDE.md, CONTRIBUTING.md, pyproject.toml and package.json. Each convention is stored with its
    directory and language. Files that git ignores are not read.

    Run it again after changes. New conventions of a file replace its old ones, and those of deleted files are erased.

    Example: orga knowledge import-conventions

    Example: orga knowledge import-conventions ../web --at web --untrusted
    """
    level, owner = scope_and_owner(scope, user=user, tenant=tenant, agent=agent)
    if not path.is_dir():
        raise UsageError(f"{path}: is not a folder. Name the folder of a project")
    document_owner = DocumentOwner(level, owner, (UNTRUSTED_TAINT,) if untrusted else ())
    changes: list[FileChange] = []
    async with open_store(config) as context:
        target = _convention_target(path.resolve(), context.root, at, project, document_owner)
        with progress_line() as report, usage_errors():
            imported = import_conventions(
                context.store, path.resolve(), target, lambda done, total: report(f"{done} of {total} files are read")
            )
            async for change in imported:
                changes.append(change)
        if json:
            write_json({"project": target.project, "at": target.at, "files": [asdict(change) for change in changes]})
        else:
            _report_conventions(changes)
        await context.store.purge()  # even if nothing changed, as an earlier command may not have wiped its items


def _convention_target(
    path: Path, root: Path, at: str | None, project: str | None, owner: DocumentOwner
) -> ConventionTarget:
    """Return the conventions' project, directory and owner. Raise UsageError for a bad `--at` or `--project`."""
    is_inside = path.is_relative_to(root)
    own_directory = path.relative_to(root).as_posix() if is_inside else ""
    parts = [part for part in (own_directory if at is None else at).split("/") if part not in {"", "."}]
    if ".." in parts:
        raise UsageError(f"--at {at!r}: contains `..`. Name a directory below the root")
    folder_name = re.sub(r"[^\w.-]", "-", (root if is_inside else path).name)[:100]
    name = project or folder_name or "project"
    if not _PROJECT.fullmatch(name):
        raise UsageError(f"--project {name!r}: use only letters, digits, '.', '-' and '_', at most 100")
    return ConventionTarget(name, "/".join(parts), owner.scope, owner.owner, owner.taint)


_CHANGE_TEXTS = {
    "added": "added",
    "changed": "changed, stored again",
    "unchanged": "unchanged",
    "removed": "gone, forgotten",
    "unreadable": "not read, unchanged",
}


def _report_conventions(changes: Sequence[FileChange]) -> None:
    if not changes:
        write_note("no file here contains conventions; see: orga knowledge import-conventions --help")
        return
    for change in changes:
        count = count_text(change.items, "convention")
        why = f": {terminal_line(change.detail, _PATH_CHARS)}" if change.detail else ""
        write_result(f"{_CHANGE_TEXTS[change.change]:<24}  {terminal_line(change.path, _PATH_CHARS)}  ({count}){why}")
    sums = Counter(change.change for change in changes)
    write_note(", ".join(f"{count} {change}" for change, count in sums.items()))


def add(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT PREDICATE OBJECT | TEXT",
            help="A fact as three arguments, or a text as one; `-` reads the text from standard input.",
            show_default=False,
        ),
    ],
    *,
    scope: Scope = None,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    confidence: Annotated[float, typer.Option(min=0, max=1, help="The confidence, from 0 to 1.")] = DEFAULT_CONFIDENCE,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Do not recall it after this time: 30d from now, or a date.", show_default=False
        ),
    ] = None,
    directory: Annotated[
        str | None, typer.Option(metavar="DIR", help="Store a convention of this directory; `.` is the root.")
    ] = None,
    language: Annotated[str | None, typer.Option(metavar="NAME", help="Store a convention of this language.")] = None,
    source: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The source. Default: your login name.", show_default=False)
    ] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> Command:
    """Store a fact, a text or a convention. Nothing is stored twice.

    A new fact contradicts an older fact with the same subject and predicate but another object, and ranks above it.

    Example: orga knowledge add "the api" "is deployed" "on Fridays" --tenant shop

    Example: orga knowledge add "Ada prefers short answers" --user ada --expires 90d

    Example: orga knowledge add "Handlers hold no SQL." --directory src/api
    """
    level, owner = scope_and_owner(scope, user=user, tenant=tenant, agent=agent)
    kind, text, fact = _parse_words(words)
    if directory is not None or language is not None:
        if kind == "fact":
            raise UsageError("--directory and --language: are for conventions, which are one text. Give one argument")
        kind = "convention"
    item = KnowledgeItem(
        kind=kind,
        text=clean_text(text),
        scope=level,
        owner=owner,
        **dict(zip(("subject", "predicate", "object"), map(clean_text, fact), strict=False)),  # a text has none of them
        directory=directories_above(directory or "")[0],
        language=(language or "").strip().lower(),
        confidence=confidence,
        provenance=Provenance(source=source or login_name()),
        expires_at=_parse_expiry(expires),
    )

    async def store() -> None:
        async with open_store(config) as context:
            [stored] = await context.store.store([item])
        if json:
            write_json(stored.model_dump(mode="json"))
            return
        change = {"added": "added", "updated": "replaced the earlier one", "unchanged": "already stored"}
        write_result(f"{full_field_text(stored.id)}  {change[stored.change]}")
        for older in stored.contradicts:
            write_note(f"  contradicts {full_field_text(older)}, which now ranks below it")

    return store()


def _parse_words(words: list[str]) -> tuple[KnowledgeKind, str, list[str]]:
    if len(words) == 3:
        return "fact", " ".join(words), words
    if len(words) != 1:
        raise UsageError(f"{len(words)} arguments: quote a fact as three (SUBJECT PREDICATE OBJECT), or a text as one")
    return "memory", text_or_stdin(words[0]), []


def _parse_expiry(when: str | None) -> datetime | None:
    if when is None:
        return None
    now = datetime.now(UTC)
    is_time = "-" in when or ":" in when
    time = parse_time(when, "--expires").astimezone(UTC) if is_time else now + parse_duration(when, "--expires")
    if time <= now:
        raise UsageError(f"--expires {when!r}: is in the past")
    return time
