"""`orga knowledge forget`: erasure, by what it is about or whose it is."""

import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from orga.activities.knowledge.erasing import is_erased_by
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.knowledge.opened import headline, kind_counts_text, open_store
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.workflows.types.knowledge import Erasure, KnowledgeKind
from orga.workflows.types.text import clean_text

_EXAMPLES = 5
"""Items that are shown before somebody agrees."""


def forget(
    *,
    id_: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="These items; may be repeated.", show_default=False)
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Facts about it, and what was learnt from that task.", show_default=False),
    ] = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="What this run stored.", show_default=False)] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What this user of --tenant owns, else of no tenant.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What this tenant owns, its users and agents too; '' for no tenant."),
    ] = None,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="With --user: of that name in whatever tenant, and in none.")
    ] = False,
    source: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What comes from there.", show_default=False)
    ] = None,
    expired: Annotated[bool, typer.Option("--expired", help="What has expired, and is recalled no more.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Erase items, and say what went. All that is named has to fit; what goes is shown first, and asked about.

    The histories of runs keep what these runs were sent; `orga knowledge export` files keep what they hold.

    Example: orga knowledge forget --user ada

    Example: orga knowledge forget --user ada --tenant shop

    Example: orga knowledge forget --run agent-0198 --tenant shop --yes

    Example: orga knowledge forget --expired --yes
    """
    _refuse_empty_options({"--id": id_, "--subject": subject, "--run": run, "--user": user, "--source": source})
    if all_tenants and (user is None or tenant is not None):
        raise UsageError("--all-tenants goes with --user, and without --tenant")
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
        raise UsageError("say what: --id, --subject, --run, --user, --tenant, --source or --expired")
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nobody is here to agree; give --yes")
    going = Counter[KnowledgeKind]()
    if not yes and (code := run_interruptible(_count_matches(what, config, going))):
        return code
    if going and not typer.confirm(f"Forget {kind_counts_text(going)}, for ever?", default=False, err=True):
        return 130
    return run_interruptible(_forget(what, config, as_json=json))


def _refuse_empty_options(named: Mapping[str, str | list[str] | None]) -> None:
    """Refuse an option that is given and empty: a variable that is not set, which would widen what goes.

    Raises:
        UsageError: There is one.
    """
    for option, value in named.items():
        values = [value] if isinstance(value, str) else value or []
        if not all(each.strip() for each in values):
            raise UsageError(f"{option} is empty, and all that fits the rest would go; give its value, or leave it out")


async def _count_matches(what: Erasure, config: Path | None, going: Counter[KnowledgeKind]) -> int:
    async with open_store(config) as here:
        async for item in here.store.items(source_prefix=what.source):
            if is_erased_by(item, what):
                going[item.kind] += 1
                if going.total() <= _EXAMPLES:
                    write_note(f"  {headline(item)}")
    if going.total() > _EXAMPLES:
        write_note(f"  and {going.total() - _EXAMPLES:,} more")
    return 0


async def _forget(what: Erasure, config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        gone = await here.store.forget(what)
        if not gone and what.user and what.tenant == "":
            write_note("of users of that name in tenants nothing is forgotten without --tenant or --all-tenants")
        if as_json:
            write_json({"forgotten": sum(gone.values()), "kinds": gone})
        else:
            write_result(f"forgotten: {kind_counts_text(gone)}")
        await here.store.purge()  # of nothing too: it may be what was forgotten before and could not be wiped then
    return 0
