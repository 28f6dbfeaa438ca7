"""The `orga knowledge` commands: search, show, export, erase, count and index what agents recall from run to run."""

import os
import sys
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, get_args

import typer

from orga.activities.adapters.shared_files import Draft, draft_next_to
from orga.activities.knowledge.conventions import conventions_for, language_of_path
from orga.activities.knowledge.exchange import export_lines
from orga.activities.knowledge.identity import is_erased_by
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.activities.knowledge.words import text_with_task
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import CTRL_C_EXIT_CODE, interruptible_prompt
from orga.client.cli.knowledge import imports
from orga.client.cli.knowledge.opened import (
    Agent,
    Tenant,
    User,
    build_reader,
    facts_line,
    headline,
    kind_counts_text,
    open_store,
)
from orga.client.cli.live.screens import progress_line
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import count_text, indented_lines, write_json, write_note, write_result
from orga.client.server.endpoint import Report
from orga.workflows.types.knowledge import (
    DEFAULT_RECALLED,
    DEFAULT_THRESHOLD,
    RECALLED_KINDS,
    Erasure,
    KnowledgeKind,
    Recall,
)
from orga.workflows.types.text import clean_text, escaped_text, full_field_text

KINDS: tuple[KnowledgeKind, ...] = get_args(KnowledgeKind)

Kinds = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND", help=f"Only this kind: {', '.join(KINDS[:-1])} or {KINDS[-1]}. Repeat it.", show_default=False
    ),
]


async def search(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Words to find. Default: the newest items.", show_default=False)
    ] = "",
    *,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    kind: Kinds = None,
    directory: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Show the conventions of this directory, nearest first, without QUERY."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --directory: only this language. Default: that of DIR, if it is a file."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Maximum number of items.")] = DEFAULT_RECALLED,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Minimum score.")] = DEFAULT_THRESHOLD,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Show what a user, tenant and agent would recall, best first, with scores and sources.

    The search has the rights of that user, tenant and agent, so it does not find items of other owners.

    Example: orga knowledge search "when is the api deployed" --tenant shop

    Example: orga knowledge search --directory src/api/users.py
    """
    if directory is not None and (query or kind):
        raise UsageError("--directory: shows conventions by their place. Remove QUERY and --kind")
    if language is not None and directory is None:
        raise UsageError("--language: needs --directory. The root is `--directory .`")
    reader = build_reader(user=user, tenant=tenant, agent=agent)
    kinds = _parse_kinds(kind) if kind else RECALLED_KINDS
    async with open_store(config) as context:
        if directory is not None:
            wanted_language = language_of_path(directory) if language is None else language
            matches = await conventions_for(context.store, reader, directory, wanted_language, limit)
        else:
            recall = Recall(text=clean_text(query), reader=reader, limit=limit, threshold=threshold, kinds=kinds)
            matches = await context.store.recall(recall)
    if json:
        write_json([{"score": round(match.score, 4), **match.item.model_dump(mode="json")} for match in matches])
        return
    for match in matches:
        write_result(f"{match.score:.2f}  {headline(match.item)}", f"      {facts_line(match.item)}")
    if not matches:
        write_note(
            "this reader may recall nothing that matches; --user, --tenant or --agent search as another reader, "
            "and `orga knowledge stats` counts all items"
        )


async def show(
    item_id: Annotated[
        str, typer.Argument(metavar="ID", help="The item's id. `orga knowledge search` shows it.", show_default=False)
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Show an item in full, expired or not: its text, its owner and the run that stored it.

    Example: orga knowledge show ID
    """
    async with open_store(config) as context:
        item = await context.store.get(clean_text(item_id))
    if item is None:
        raise UsageError(f"there is no item {item_id!r}. `orga knowledge search` shows ids")
    if json:
        write_json(item.model_dump(mode="json"))
        return
    language = [f"  language {full_field_text(item.language)}"] if item.language else []
    write_result(f"{item.kind}  {full_field_text(item.id)}", f"  {facts_line(item)}", *language, "")
    write_result(*indented_lines(text_with_task(item)))


def _parse_kinds(names: list[str]) -> tuple[KnowledgeKind, ...]:
    """Return the named kinds, in the fixed order of all kinds. Raise UsageError for another name."""
    for name in names:
        if name not in KINDS:
            raise UsageError(f"--kind {name!r}: unknown kind. Use one of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)


_REPORT_INTERVAL = 500
"""Items between two reports of progress."""


async def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file, which only you may read. Default: standard output.")
    ] = None,
    *,
    kind: Kinds = None,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Write all items of all users and tenants, one per line, in the format that `orga knowledge import` reads.

    Only a complete export replaces an existing file. If the store is damaged, the readable items are written (to
    backup.partial.jsonl if backup.jsonl exists), and the exit code is 6.

    Example: orga knowledge export backup.jsonl

    Example: orga knowledge export --kind fact | grep acme
    """
    kinds = _parse_kinds(kind) if kind else ()
    async with open_store(config) as context:
        if file is None:
            async for line in export_lines(context.store, kinds=kinds):
                write_result(escaped_text(line))
            return
        with _export_draft(file) as draft:
            with progress_line() as report:
                count, damage = await _write_items(context.store, kinds, draft.file, report)
            target = file if damage is None else _partial_path(file)
            if count or damage is None:
                draft.move_to(target)
        if damage is not None:
            outcome = f"written to {target}" if count else "nothing was written"
            write_note(f"{count_text(count, 'item')} could be read; {outcome}")
            raise damage
    if json:
        write_json({"file": str(file), "items": count})
    else:
        write_result(f"{count_text(count, 'item')} written to {file}")


def _partial_path(path: Path) -> Path:
    """Return the file for a damaged store's items. An existing file is kept, as it may be the last complete export."""
    return path.with_stem(f"{path.stem}.partial") if os.path.lexists(path) else path


async def _write_items(
    store: KnowledgeStore, kinds: tuple[KnowledgeKind, ...], file: BinaryIO, report: Report
) -> tuple[int, KnowledgeError | None]:
    """Write all items, or the readable items of a damaged store. Return their number and the error about the damage.

    Raises:
        KnowledgeError: The store failed for another reason than damage. The file is then no export, not even in part.
    """
    count = -1  # the first line is a header
    try:
        async for line in export_lines(store, kinds=kinds):
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


_EXAMPLES = 5
"""Items that are shown before the confirmation."""


async def forget(
    *,
    id_: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="The item with this id. Repeat it.", show_default=False),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Facts about this subject, and learnings from this task.", show_default=False
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="ID", help="Items that this run stored.", show_default=False)
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Items of this user, who belongs to --tenant or else to none.", show_default=False
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Items of this tenant, its users and its agents; '' for no tenant."),
    ] = None,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="With --user: all users of that name, with any tenant or none.")
    ] = False,
    source: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Items from this source.", show_default=False)
    ] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Expired items, which are not recalled any more.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Erase the items that match all given options. The command first shows them and asks for confirmation.

    Items stay in the histories of runs that received them, and in files of `orga knowledge export`.

    Example: orga knowledge forget --user ada

    Example: orga knowledge forget --user ada --tenant shop

    Example: orga knowledge forget --run agent-0198 --tenant shop --yes

    Example: orga knowledge forget --expired --yes
    """
    _refuse_empty_options({"--id": id_, "--subject": subject, "--run": run, "--user": user, "--source": source})
    if all_tenants and (user is None or tenant is not None):
        raise UsageError("--all-tenants: needs --user and cannot be combined with --tenant")
    if user is not None and not all_tenants:
        tenant = tenant or ""
    erasure = Erasure(
        ids=tuple(map(clean_text, id_ or ())),
        subject=clean_text(subject or ""),
        workflow_id=clean_text(run or ""),
        user=clean_text(user or ""),
        tenant=None if tenant is None else clean_text(tenant),
        source=clean_text(source or ""),
        expired_by=datetime.now(UTC) if expired else None,
    )
    if erasure == Erasure():
        raise UsageError("name what to erase: --id, --subject, --run, --user, --tenant, --source or --expired")
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("there is no terminal to ask for confirmation. Add --yes")
    if not yes and (matches := await _show_matches(erasure, config)):
        with interruptible_prompt():
            if not typer.confirm(f"Erase {kind_counts_text(matches)} for ever?", default=False, err=True):
                return CTRL_C_EXIT_CODE
    async with open_store(config) as context:
        erased = await context.store.forget(erasure)
        if not erased and erasure.user and erasure.tenant == "":
            write_note("users of that name in tenants are included only with --tenant or --all-tenants")
        if json:
            write_json({"forgotten": sum(erased.values()), "kinds": erased})
        else:
            write_result(f"forgotten: {kind_counts_text(erased)}")
        await context.store.purge()  # even if nothing was erased, as an earlier command may not have wiped its items
    return 0


def _refuse_empty_options(options: Mapping[str, str | list[str] | None]) -> None:
    """Raise UsageError for an empty option, which an unset shell variable can cause. It would match too many items."""
    for option, value in options.items():
        texts = [value] if isinstance(value, str) else value or []
        if not all(text.strip() for text in texts):
            raise UsageError(f"{option}: is empty, so more would be erased than named. Give a value, or remove it")


async def _show_matches(erasure: Erasure, config: Path | None) -> Counter[KnowledgeKind]:
    """Note the first items that will be erased, and return the number of each kind."""
    matches = Counter[KnowledgeKind]()
    async with open_store(config) as context:
        async for item in context.store.items(source_prefix=erasure.source):
            if is_erased_by(item, erasure):
                matches[item.kind] += 1
                if matches.total() <= _EXAMPLES:
                    write_note(f"  {headline(item)}")
    if matches.total() > _EXAMPLES:
        write_note(f"  and {matches.total() - _EXAMPLES:,} more")
    return matches


async def stats(*, json: Json = False, config: ConfigFile = None) -> None:
    """Show where knowledge is stored, and count its items: by kind, expired, contradicted, tainted and not indexed.

    Example: orga knowledge stats
    """
    async with open_store(config) as context:
        facts = await context.store.facts()
    if json:
        write_json(asdict(facts))
        return
    write_result(
        f"{facts.backend}  {full_field_text(facts.place)}  {facts.size_bytes:,} bytes, schema {facts.schema_version}",
        f"holds     {kind_counts_text(facts.counts)}",
        f"of these  {facts.expired:,} expired, {facts.contradicted:,} contradicted, {facts.tainted:,} tainted",
        f"embedder  {full_field_text(facts.embedder)}",
    )
    if facts.unindexed:
        write_note(
            f"{facts.unindexed:,} items have no vectors of the configured embedder, so only their words are searched; "
            "to index them: orga knowledge reindex"
        )
    if facts.expired:
        write_note("expired items are not recalled; to erase them: orga knowledge forget --expired")


async def reindex(*, json: Json = False, config: ConfigFile = None) -> None:
    """Rebuild the text index and the vectors with the embedder that is configured now.

    If you stop the command, the same command continues later.

    Example: orga knowledge reindex
    """
    async with open_store(config) as context:
        with progress_line() as report:
            done = await context.store.reindex(lambda done, total: report(f"{done:,} of {total:,} items are indexed"))
    if json:
        write_json({"indexed": done})
    else:
        write_result(f"{done:,} items got new vectors; the text index is new" if done else "the indexes are up to date")


app = typer.Typer(
    no_args_is_help=True,
    epilog="\\[knowledge] in orga.toml sets where knowledge is stored. The guide is docs/knowledge.md.",
    rich_markup_mode="rich",
)

app.command("add")(imports.add)
app.command("search")(search)
app.command("show")(show)
app.command("forget")(forget)
app.command("import")(imports.import_)
app.command("import-conventions")(imports.import_project_conventions)
app.command("export")(export)
app.command("stats")(stats)
app.command("reindex")(reindex)
