"""`orga knowledge search` shows what a reader would recall. `orga knowledge show` shows an item in full."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from orga.activities.knowledge.conventions import conventions_for, language_of_path
from orga.activities.knowledge.words import text_with_task
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.knowledge.opened import Agent, Tenant, User, build_reader, facts_line, headline, open_store
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import indented_lines, write_json, write_note, write_result
from orga.workflows.types.knowledge import (
    DEFAULT_RECALLED,
    DEFAULT_THRESHOLD,
    RECALLED_KINDS,
    KnowledgeKind,
    Reader,
    Recall,
    Recalled,
)
from orga.workflows.types.text import clean_text, full_field_text

KINDS: tuple[KnowledgeKind, ...] = get_args(KnowledgeKind)

Kinds = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND", help=f"Only this kind: {', '.join(KINDS[:-1])} or {KINDS[-1]}. Repeat it.", show_default=False
    ),
]


def search(
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
        typer.Option(metavar="NAME", help="With --directory: only this language. Default: the language of the file."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Maximum number of items.")] = DEFAULT_RECALLED,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Minimum score.")] = DEFAULT_THRESHOLD,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show what a user, tenant and agent would recall, best first, with scores and sources.

    The search has the rights of that user, tenant and agent, so it does not find items of other owners.

    Example: orga knowledge search "when is the api deployed" --tenant shop

    Example: orga knowledge search --directory src/api/users.py
    """
    if directory is not None and (query or kind):
        raise UsageError("--directory: shows conventions by their place. Remove QUERY and --kind")
    if language is not None and directory is None:
        raise UsageError("--language: needs --directory. The root is `--directory .`")
    who = build_reader(user=user, tenant=tenant, agent=agent)
    if directory is not None:
        chosen = language_of_path(directory) if language is None else language
        return run_interruptible(_show_conventions(who, directory, chosen, limit, config, as_json=json))
    request = Recall(
        text=clean_text(query),
        reader=who,
        limit=limit,
        threshold=threshold,
        kinds=parse_kinds(kind) if kind else RECALLED_KINDS,
    )
    return run_interruptible(_search(request, config, as_json=json))


def show(
    item_id: Annotated[
        str, typer.Argument(metavar="ID", help="The item's id. `orga knowledge search` shows it.", show_default=False)
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show an item in full, expired or not: its text, its owner and the run that stored it.

    Example: orga knowledge show ID
    """
    return run_interruptible(_show_item(item_id, config, as_json=json))


async def _show_conventions(
    who: Reader, directory: str, language: str, limit: int, config: Path | None, *, as_json: bool
) -> int:
    async with open_store(config) as here:
        found = await conventions_for(here.store, who, directory, language, limit)
    _show_recalled(found, as_json=as_json)
    return 0


async def _search(request: Recall, config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        found = await here.store.recall(request)
    _show_recalled(found, as_json=as_json)
    return 0


def _show_recalled(found: list[Recalled], *, as_json: bool) -> None:
    if as_json:
        write_json([{"score": round(each.score, 4), **each.item.model_dump(mode="json")} for each in found])
    elif not found:
        write_note(
            "this reader may recall nothing that matches; --user, --tenant or --agent search as another reader, "
            "and `orga knowledge stats` counts all items"
        )
    for each in () if as_json else found:
        write_result(f"{each.score:.2f}  {headline(each.item)}", f"      {facts_line(each.item)}")


async def _show_item(item_id: str, config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        item = await here.store.get(clean_text(item_id))
    if item is None:
        raise UsageError(f"there is no item {item_id!r}. `orga knowledge search` shows ids")
    if as_json:
        write_json(item.model_dump(mode="json"))
        return 0
    place = [f"language {full_field_text(item.language)}"] if item.language else []
    write_result(
        f"{item.kind}  {full_field_text(item.id)}", f"  {facts_line(item)}", *(f"  {line}" for line in place), ""
    )
    write_result(*indented_lines(text_with_task(item)))
    return 0


def parse_kinds(named: list[str]) -> tuple[KnowledgeKind, ...]:
    """Return the named kinds, in the fixed order of all kinds. Raise UsageError for another name."""
    for name in named:
        if name not in KINDS:
            raise UsageError(f"--kind {name!r}: unknown kind. Use one of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in named)
