"""`orga knowledge import`, `import-conventions` and `add`."""

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from orga.activities.adapters.knowledge.conventions.changes import (
    FileChange,
    FileOutcome,
    TooManyFiles,
    import_conventions,
)
from orga.activities.adapters.knowledge.conventions.files import ConventionTarget
from orga.activities.adapters.knowledge.documents import (
    SUFFIXES,
    DocumentChange,
    DocumentOwner,
    import_documents,
    missing_documents,
)
from orga.activities.knowledge.conventions import directories_above
from orga.activities.knowledge.erasing import forget_ids
from orga.activities.knowledge.exchange import file_lines, import_items, read_items
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
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
from orga.client.cli.live.terminal import progress_line
from orga.client.cli.options import ConfigFile, Json, login_name, parse_duration, parse_time
from orga.client.cli.shown.text import count_text, on_one_line, write_json, write_note, write_result
from orga.client.server.endpoint import Report
from orga.workflows.types.knowledge import KnowledgeItem, KnowledgeKind, Provenance, Stored
from orga.workflows.types.text import clean_text, full_field_text

EXPORT_SUFFIX = ".jsonl"
_PATH_CHARS = 300


@dataclass
class _ImportTotals:
    """What has been imported so far."""

    fates: Counter[str] = field(default_factory=Counter[str])
    parts: int = 0
    unreadable: list[DocumentChange] = field(default_factory=list[DocumentChange])
    gone: list[str] = field(default_factory=list[str])
    """Documents that their folders have no more."""
    forgotten: list[str] = field(default_factory=list[str])
    """Such ones, where they are to be forgotten."""
    items: Counter[str] = field(default_factory=Counter[str])
    """Of exports that were imported whole."""
    items_so_far: int = 0
    """Of the one that is being imported."""

    def keep(self, fate: DocumentChange) -> None:
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
        parts = count_text(self.parts, "part")
        fates = self.fates + Counter(gone=len(self.gone), forgotten=len(self.forgotten))
        told = [f"documents: {_change_counts_text(fates)} ({parts})"] if fates else []
        told += [f"items: {_change_counts_text(self.items)}"] if self.items else []
        return told + ([f"items so far: {self.items_so_far:,}"] if self.items_so_far else [])


def _change_counts_text(changes: Counter[str]) -> str:
    return ", ".join(f"{count:,} {change}" for change, count in changes.items() if count)


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATHS", help=f"Documents, folders of them, or {EXPORT_SUFFIX} files of an export."),
    ],
    *,
    scope: Scope = None,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    untrusted: UntrustedOption = False,
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
    level, owner = scope_and_owner(scope, user=user, tenant=tenant, agent=agent)
    says_whose = any(option is not None for option in (scope, user, tenant, agent))
    if says_whose and any(path.suffix == EXPORT_SUFFIX for path in paths):
        raise UsageError(
            f"the lines of a {EXPORT_SUFFIX} file say themselves whose they are; import it without these options"
        )
    taint = (UNTRUSTED_TAINT,) if untrusted else ()
    found = [(path, path.is_dir()) for path in paths]
    whose = DocumentOwner(level, owner, taint)
    return run_interruptible(_import(found, whose, config, forgets_gone=forget_gone, as_json=json))


async def _import(
    paths: Sequence[tuple[Path, bool]], whose: DocumentOwner, config: Path | None, *, forgets_gone: bool, as_json: bool
) -> int:
    done = _ImportTotals()
    async with open_store(config) as here:
        try:
            with progress_line() as report:
                importing = _ImportRun(here.store, here.root, whose, report, done)
                for path, is_folder in paths:
                    if path.suffix == EXPORT_SUFFIX and not is_folder:
                        await importing.lines(path)
                    else:
                        await importing.documents(path, is_folder=is_folder, forgets_gone=forgets_gone)
        except asyncio.CancelledError:
            write_note(*done.told(), "stopped; what was imported stays, and the same command goes on from here")
            raise
        _show_totals(done, as_json=as_json)
        await here.store.purge()  # of nothing too: it may be what was replaced before and could not be wiped then
    return 0


def _show_totals(done: _ImportTotals, *, as_json: bool) -> None:
    if as_json:
        write_json(done.as_json())
        return
    for each in done.unreadable:
        write_note(f"not read: {on_one_line(each.source, _PATH_CHARS)}: {on_one_line(each.detail, _PATH_CHARS)}")
    write_note(*(f"gone, forgotten: {on_one_line(source, _PATH_CHARS)}" for source in done.forgotten))
    write_note(*(f"gone, and still stored: {on_one_line(source, _PATH_CHARS)}" for source in done.gone))
    if done.gone:
        write_note("what is gone is forgotten by the same command with --forget-gone, one of them by: forget --source")
    write_result(*(done.told() or [f"nothing to import: of folders, {' '.join(SUFFIXES)} files are read"]))


@dataclass
class _ImportRun:
    """An import at work: into which store, whose its documents become, how all of it is marked, and what is done."""

    store: KnowledgeStore
    root: Path
    whose: DocumentOwner
    report: Report
    done: _ImportTotals
    _begun: int = 0

    async def documents(self, path: Path, *, is_folder: bool, forgets_gone: bool) -> None:
        """Import a document, or those of a folder, and see which of it are gone."""
        seen = set[str]()
        async with aclosing(import_documents(self.store, path, self.root, self.whose, self._report_document)) as fates:
            async for fate in fates:
                if fate.change == "unreadable" and not is_folder:
                    raise UsageError(f"{path} cannot be imported: {fate.detail}")
                self.done.keep(fate)
                seen.add(fate.source)
        gone = await missing_documents(self.store, path, self.root, self.whose, seen) if is_folder else {}
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
                items = (item.with_taint(self.whose.taint) for item in read_items(file_lines(file)))
                imported = await import_items(self.store, items, stored)
            except KnowledgeError as error:
                raise KnowledgeError(f"{path}: {error}", kind=error.kind, retryable=error.retryable) from None
        self.done.items.update(asdict(imported))
        self.done.items_so_far = 0

    def _report_document(self, source: str) -> None:
        self._begun += 1
        self.report(f"document {self._begun:,}, {self.done.parts:,} parts so far: {source}")


_PROJECT = re.compile(r"[\w.-]{1,100}")


def import_project_conventions(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The project's folder, or one in it; else this one.")
    ] = Path(),
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The directory that PATH is for agents; else as it lies below the root of the project, or the root.",
            show_default=False,
        ),
    ] = None,
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name; else that of its folder.", show_default=False)
    ] = None,
    scope: Scope = None,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    untrusted: UntrustedOption = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Read AGENTS.md, CLAUDE.md, CONTRIBUTING.md, .editorconfig, pyproject.toml, package.json and the like, wherever
    they lie, and store what they say with its directory and language.

    Called again, it finds what has changed: a file's conventions take the place of those before, and those of a file
    that is gone are forgotten. Files that git ignores are left out.

    Example: orga knowledge import-conventions

    Example: orga knowledge import-conventions ../web --at web --untrusted
    """
    level, owner = scope_and_owner(scope, user=user, tenant=tenant, agent=agent)
    if not path.is_dir():
        raise UsageError(f"{path} is no folder; name the folder of a project")
    wish = _ConventionImport(
        path.resolve(), at, project, DocumentOwner(level, owner, (UNTRUSTED_TAINT,) if untrusted else ())
    )
    return run_interruptible(_import_conventions(wish, config, as_json=json))


class _ConventionImport:
    """What is read, and where it goes."""

    def __init__(self, path: Path, at: str | None, project: str | None, whose: DocumentOwner) -> None:
        self.path = path
        self._at = at
        self._project = project
        self._whose = whose

    def place(self, root: Path) -> ConventionTarget:
        """Return the place below the root of file tools.

        Raises:
            UsageError: There is none.
        """
        is_inside = self.path.is_relative_to(root)
        at = self._at if self._at is not None else self.path.relative_to(root).as_posix() if is_inside else ""
        parts = [part for part in at.split("/") if part not in {"", "."}]
        if ".." in parts:
            raise UsageError(f"--at {at!r}: name a directory below the root, without ..")
        project = self._project or re.sub(r"[^\w.-]", "-", (root if is_inside else self.path).name)[:100] or "project"
        if not _PROJECT.fullmatch(project):
            raise UsageError(f"--project {project!r}: letters, digits, '.', '-' and '_' only, at most 100")
        return ConventionTarget(project, "/".join(parts), self._whose.scope, self._whose.owner, self._whose.taint)


async def _import_conventions(wish: _ConventionImport, config: Path | None, *, as_json: bool) -> int:
    changes: list[FileChange] = []
    async with open_store(config) as here:
        place = wish.place(here.root)
        with progress_line() as report:
            try:
                found = import_conventions(
                    here.store, wish.path, place, lambda done, of: report(f"{done} of {of} files are read")
                )
                async for each in found:
                    changes.append(each)
            except TooManyFiles as error:
                raise UsageError(str(error)) from None
        if as_json:
            write_json({"project": place.project, "at": place.at, "files": [asdict(each) for each in changes]})
        else:
            _report_conventions(changes)
        await here.store.purge()  # of nothing too: it may be what was replaced before and could not be wiped then
    return 0


_CHANGE_TEXTS: dict[FileOutcome, str] = {
    "added": "added",
    "changed": "changed, stored anew",
    "unchanged": "unchanged",
    "removed": "gone, forgotten",
    "unreadable": "not read, left as it was",
}


def _report_conventions(changes: Sequence[FileChange]) -> None:
    if not changes:
        write_note("no file here holds conventions; see: orga knowledge import-conventions --help")
        return
    for each in changes:
        count = count_text(each.items, "convention")
        why = f": {on_one_line(each.detail, _PATH_CHARS)}" if each.detail else ""
        write_result(f"{_CHANGE_TEXTS[each.change]:<24}  {on_one_line(each.path, _PATH_CHARS)}  ({count}){why}")
    sums = Counter(each.change for each in changes)
    write_note(", ".join(f"{count} {change}" for change, count in sums.items()))


def add(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT PREDICATE OBJECT | TEXT",
            help="A fact in three arguments, or a text in one; `-` reads the text from standard input.",
            show_default=False,
        ),
    ],
    *,
    scope: Scope = None,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    confidence: Annotated[float, typer.Option(min=0, max=1, help="How sure it is.")] = 0.8,
    expires: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="From then on it is not recalled: 30d, or a time.", show_default=False),
    ] = None,
    directory: Annotated[
        str | None, typer.Option(metavar="DIR", help="A convention of this directory; `.` is the root.")
    ] = None,
    language: Annotated[str | None, typer.Option(metavar="NAME", help="A convention of this language.")] = None,
    source: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Where it comes from; else your login name.", show_default=False)
    ] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Store a fact, a text or a convention. What is there already is not stored twice.

    A fact with another object contradicts the older one of the same subject and predicate, and ranks above it.

    Example: orga knowledge add "the api" "is deployed" "on Fridays" --tenant shop

    Example: orga knowledge add "Ada prefers short answers" --user ada --expires 90d

    Example: orga knowledge add "Handlers hold no SQL." --directory src/api
    """
    level, owner = scope_and_owner(scope, user=user, tenant=tenant, agent=agent)
    kind, text, fact = _parse_words(words)
    if directory is not None or language is not None:
        if kind == "fact":
            raise UsageError("a convention is one text, not three; --directory and --language are for conventions")
        kind = "convention"
    item = KnowledgeItem(
        kind=kind,
        text=clean_text(text),
        scope=level,
        owner=owner,
        **dict(zip(("subject", "predicate", "object"), map(clean_text, fact), strict=False)),
        directory=directories_above(directory or "")[0],
        language=(language or "").strip().lower(),
        confidence=confidence,
        provenance=Provenance(source=source or login_name()),
        expires_at=_parse_expiry(expires),
    )
    return run_interruptible(_add(item, config, as_json=json))


async def _add(item: KnowledgeItem, config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        [stored] = await here.store.store([item])
    if as_json:
        write_json(stored.model_dump(mode="json"))
        return 0
    write_result(f"{full_field_text(stored.id)}  {_stored_text(stored)}")
    for older in stored.contradicts:
        write_note(f"  contradicts {full_field_text(older)}, which ranks below it from now on")
    return 0


def _stored_text(stored: Stored) -> str:
    return {"added": "added", "updated": "took the place of the one before", "unchanged": "was there"}[stored.change]


def _parse_words(words: list[str]) -> tuple[KnowledgeKind, str, list[str]]:
    if len(words) == 3:
        return "fact", " ".join(words), words
    if len(words) != 1:
        raise UsageError(f"{len(words)} arguments: quote a fact as three, SUBJECT PREDICATE OBJECT, or a text as one")
    return "memory", sys.stdin.read() if words == ["-"] else words[0], []


def _parse_expiry(when: str | None) -> datetime | None:
    if when is None:
        return None
    now = datetime.now(UTC)
    is_time = "-" in when or ":" in when
    time = parse_time(when, "--expires").astimezone(UTC) if is_time else now + parse_duration(when, "--expires")
    if time <= now:
        raise UsageError(f"--expires {when!r} lies in the past")
    return time
