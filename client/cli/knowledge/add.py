"""`orga knowledge add`: a fact, or a text, by hand."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from orga.activities.knowledge.conventions import directories_above
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.knowledge.opened import opened_store
from orga.client.cli.knowledge.owners import Agent, Scope, Tenant, User, owned
from orga.client.cli.login_name import login_name
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.times import length_of, time_of
from orga.workflows.types.knowledge import KnowledgeItem, KnowledgeKind, Provenance, Stored
from orga.workflows.types.text import clean_text, in_full


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
    level, owner = owned(scope, user=user, tenant=tenant, agent=agent)
    kind, text, fact = _said(words)
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
        expires_at=_expiry(expires),
    )
    return completed(_add(item, config, as_json=json))


async def _add(item: KnowledgeItem, config: Path | None, *, as_json: bool) -> int:
    async with opened_store(config) as here:
        [stored] = await here.store.store([item])
    if as_json:
        json_result(stored.model_dump(mode="json"))
        return 0
    result(f"{in_full(stored.id)}  {_told(stored)}")
    for older in stored.contradicts:
        note(f"  contradicts {in_full(older)}, which ranks below it from now on")
    return 0


def _told(stored: Stored) -> str:
    return {"added": "added", "updated": "took the place of the one before", "unchanged": "was there"}[stored.change]


def _said(words: list[str]) -> tuple[KnowledgeKind, str, list[str]]:
    if len(words) == 3:
        return "fact", " ".join(words), words
    if len(words) != 1:
        raise UsageError(f"{len(words)} arguments: quote a fact as three, SUBJECT PREDICATE OBJECT, or a text as one")
    return "memory", sys.stdin.read() if words == ["-"] else words[0], []


def _expiry(when: str | None) -> datetime | None:
    if when is None:
        return None
    now = datetime.now(UTC)
    is_time = "-" in when or ":" in when
    time = time_of(when, "--expires").astimezone(UTC) if is_time else now + length_of(when, "--expires")
    if time <= now:
        raise UsageError(f"--expires {when!r} lies in the past")
    return time
