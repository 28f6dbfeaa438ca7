"""`orga knowledge search` and `orga knowledge show`: what a reader would recall, and an item in full."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from orga.activities.knowledge.conventions import conventions_for
from orga.activities.knowledge.languages import language_of_path
from orga.activities.knowledge.words import text_with_task
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.knowledge.opened import Agent, Tenant, User, build_reader, facts_line, headline, open_store
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import indented_lines, write_json, write_note, write_result
from orga.workflows.types.knowledge import RECALLED_KINDS, KnowledgeKind, Reader, Recall, Recalled
from orga.workflows.types.text import clean_text, full_field_text

KINDS: tuple[KnowledgeKind, ...] = get_args(KnowledgeKind)

Kinds = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND", help=f"Only {', '.join(KINDS[:-1])} or {KINDS[-1]}; may be repeated.", show_default=False
    ),
]


def search(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Words; none shows what is newest.", show_default=False)
    ] = "",
    *,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    kind: Kinds = None,
    directory: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The conventions of this directory, nearest first; QUERY is left out."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --directory: of this language, that of the file without.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="At most so many.")] = 5,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Nothing with a lower score.")] = 0.3,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show what somebody would recall, the best first: with scores, and where it comes from.

    It is looked for as that user, tenant and agent: what others own is not found.

    Example: orga knowledge search "when is the api deployed" --tenant shop

    Example: orga knowledge search --directory src/api/users.py
    """
    if directory is not None and (query or kind):
        raise UsageError("--directory shows conventions by their place: leave out QUERY and --kind")
    if language is not None and directory is None:
        raise UsageError("--language goes with --directory; `--directory .` is the root")
    who = build_reader(user=user, tenant=tenant, agent=agent)
    if directory is not None:
        spoken = language_of_path(directory) if language is None else language
        return run_interruptible(_show_conventions(who, directory, spoken, limit, config, as_json=json))
    wish = Recall(
        text=clean_text(query),
        reader=who,
        limit=limit,
        threshold=threshold,
        kinds=parse_kinds(kind) if kind else RECALLED_KINDS,
    )
    return run_interruptible(_search(wish, config, as_json=json))


def show(
    item_id: Annotated[
        str, typer.Argument(metavar="ID", help="As `orga knowledge search` shows it.", show_default=False)
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show an item in full, expired or not: what it says, whose it is, which run stored it.

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


async def _search(wish: Recall, config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        found = await here.store.recall(wish)
    _show_recalled(found, as_json=as_json)
    return 0


def _show_recalled(found: list[Recalled], *, as_json: bool) -> None:
    if as_json:
        write_json([{"score": round(each.score, 4), **each.item.model_dump(mode="json")} for each in found])
    elif not found:
        write_note(
            "nothing fits that this reader may recall; what others own is found with --user, --tenant or --agent, "
            "and `orga knowledge stats` shows what there is"
        )
    for each in () if as_json else found:
        write_result(f"{each.score:.2f}  {headline(each.item)}", f"      {facts_line(each.item)}")


async def _show_item(item_id: str, config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        item = await here.store.get(clean_text(item_id))
    if item is None:
        raise UsageError(f"there is no item {item_id!r}; `orga knowledge search` shows ids")
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
    """Return the kinds that are named.

    Raises:
        UsageError: There is no such one.
    """
    for name in named:
        if name not in KINDS:
            raise UsageError(f"--kind {name!r} is none of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in named)
