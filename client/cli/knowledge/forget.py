"""`orga knowledge forget`: erase items by subject, origin or owner."""

import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from orga.activities.knowledge.identity import is_erased_by
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.knowledge.opened import headline, kind_counts_text, open_store
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.workflows.types.knowledge import Erasure, KnowledgeKind
from orga.workflows.types.text import clean_text

_EXAMPLES = 5
"""Items that are shown before the confirmation."""


def forget(
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
            metavar="NAME", help="Items of this user of --tenant, or without --tenant of no tenant.", show_default=False
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Items of this tenant, its users and its agents; '' for no tenant."),
    ] = None,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="With --user: users of that name in every tenant and in none.")
    ] = False,
    source: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Items from this source.", show_default=False)
    ] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Expired items, which are not recalled any more.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Erase the items that match all given options. It shows them first and asks for confirmation.

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
    what = Erasure(
        ids=tuple(map(clean_text, id_ or ())),
        subject=clean_text(subject or ""),
        workflow_id=clean_text(run or ""),
        user=clean_text(user or ""),
        tenant=None if tenant is None else clean_text(tenant),
        source=clean_text(source or ""),
        expired_by=datetime.now(UTC) if expired else None,
    )
    if what == Erasure():
        raise UsageError("name what to erase: --id, --subject, --run, --user, --tenant, --source or --expired")
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("there is no terminal to ask for confirmation. Add --yes")
    matches = Counter[KnowledgeKind]()
    if not yes and (code := run_interruptible(_count_matches(what, config, matches))):
        return code
    if matches and not typer.confirm(f"Erase {kind_counts_text(matches)} for ever?", default=False, err=True):
        return 130
    return run_interruptible(_forget(what, config, as_json=json))


def _refuse_empty_options(named: Mapping[str, str | list[str] | None]) -> None:
    """Raise UsageError for an empty option. An unset shell variable would erase more than was meant."""
    for option, value in named.items():
        values = [value] if isinstance(value, str) else value or []
        if not all(each.strip() for each in values):
            raise UsageError(f"{option}: is empty, so more would be erased than named. Give a value, or remove it")


async def _count_matches(what: Erasure, config: Path | None, matches: Counter[KnowledgeKind]) -> int:
    async with open_store(config) as here:
        async for item in here.store.items(source_prefix=what.source):
            if is_erased_by(item, what):
                matches[item.kind] += 1
                if matches.total() <= _EXAMPLES:
                    write_note(f"  {headline(item)}")
    if matches.total() > _EXAMPLES:
        write_note(f"  and {matches.total() - _EXAMPLES:,} more")
    return 0


async def _forget(what: Erasure, config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        gone = await here.store.forget(what)
        if not gone and what.user and what.tenant == "":
            write_note("users of that name in tenants are included only with --tenant or --all-tenants")
        if as_json:
            write_json({"forgotten": sum(gone.values()), "kinds": gone})
        else:
            write_result(f"forgotten: {kind_counts_text(gone)}")
        await here.store.purge()  # in any case: an earlier command may have been unable to wipe what it erased
    return 0
