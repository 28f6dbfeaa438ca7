"""Opens the configured knowledge store. Also has the options and texts that the `orga knowledge` commands share."""

import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, get_args

import typer

from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.activities.knowledge.words import text_with_task
from orga.client.cli.exit_codes import UsageError, usage_errors
from orga.client.cli.shown.text import age, terminal_line
from orga.client.config.file import load_config
from orga.client.errors import OrgaError
from orga.workflows.types.knowledge import KnowledgeItem, KnowledgeKind, Reader, ScopeLevel, StoredItem
from orga.workflows.types.text import full_field_text

_USAGE_ERROR_KINDS = frozenset({"InvalidItem", "NewerSchema", "OtherProject"})


@dataclass(frozen=True)
class KnowledgeContext:
    """An open store, and the root of the project."""

    store: KnowledgeStore
    root: Path
    """The project's root. Directories of conventions and documents are relative to it, not to the working folder."""


@asynccontextmanager
async def open_store(config_file: Path | None) -> AsyncGenerator[KnowledgeContext]:
    """Yield the store, and close it at the end. Raise UsageError if it cannot be used, or OrgaError if it fails."""
    from orga.client.workers.knowledge_store import configured_store

    config = load_config(config_file)
    base = config.file.parent if config.file else Path.cwd()
    root = (config.tools.files.root or base).resolve()
    with usage_errors():
        store = configured_store(config, os.environ, root)
    try:
        with _translated_errors():
            yield KnowledgeContext(store, root)
    finally:
        await store.close()


@contextmanager
def _translated_errors() -> Generator[None]:
    try:
        yield
    except KnowledgeError as error:
        raise (UsageError if error.kind in _USAGE_ERROR_KINDS else OrgaError)(str(error)) from None


Scope = Annotated[
    str | None,
    typer.Option(
        metavar="SCOPE",
        help="Who may recall it: user, agent, tenant or global. Default: user or agent if one is named, else tenant.",
        show_default=False,
    ),
]
User = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The user, as runs name it in trusted_context.user.", show_default=False),
]
Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="The tenant. Default: no tenant.", show_default=False)]
Agent = Annotated[
    str | None, typer.Option(metavar="NAME", help="The agent, as in \\[agents.NAME].", show_default=False)
]

UntrustedOption = Annotated[
    bool, typer.Option("--untrusted", help="Use this for texts you do not trust. Runs that recall them become tainted.")
]
UNTRUSTED_TAINT = "import"
"""The taint of items that were imported with `--untrusted`."""


_OWNER_OPTIONS: dict[ScopeLevel, tuple[str, ...]] = {
    "user": ("user", "tenant"),
    "agent": ("agent", "tenant"),
    "tenant": ("tenant",),
    "global": (),
}
"""The options that name the owner in each scope."""


def scope_and_owner(
    scope: str | None, *, user: str | None, tenant: str | None, agent: str | None
) -> tuple[ScopeLevel, Reader]:
    """Return a scope and its owner. Raise UsageError if the options do not fit the scope."""
    level = _scope_level(scope, user, agent)
    owner_options = {"user": user, "agent": agent, "tenant": tenant}
    for name, value in owner_options.items():
        if value is not None and name not in _OWNER_OPTIONS[level]:
            raise UsageError(f"--{name}: does not apply to --scope {level}. Remove it, or choose another --scope")
    if level in {"user", "agent"} and not owner_options[level]:
        raise UsageError(f"--scope {level}: needs an owner. Add --{level} NAME")
    return level, build_reader(user=user, tenant=tenant, agent=agent)


def build_reader(*, user: str | None, tenant: str | None, agent: str | None) -> Reader:
    return Reader(tenant=tenant or "", user=user or "", agent=agent or "")


def _scope_level(scope: str | None, user: str | None, agent: str | None) -> ScopeLevel:
    if scope is None:
        if user is not None and agent is not None:
            raise UsageError("--user and --agent: the scope is not clear. Add --scope user or --scope agent")
        if user is not None:
            return "user"
        return "agent" if agent is not None else "tenant"
    for level in get_args(ScopeLevel):
        if scope == level:
            return level
    raise UsageError(f"--scope {scope!r}: unknown scope. Use one of {', '.join(get_args(ScopeLevel))}")


TEXT_CHARS = 300
NAME_CHARS = 200

_PLURALS: dict[KnowledgeKind, str] = {"memory": "memories"}


def kind_counts_text(counts: Mapping[KnowledgeKind, int]) -> str:
    """Return a text such as `3 facts, 1 memory`. The order of the kinds is fixed."""
    kinds: tuple[KnowledgeKind, ...] = get_args(KnowledgeKind)
    parts = [f"{count:,} {_noun(kind, count)}" for kind in kinds if (count := counts.get(kind, 0))]
    return ", ".join(parts) or "nothing"


def headline(item: StoredItem) -> str:
    return f"{item.kind:<10}  {full_field_text(item.id)}  {terminal_line(text_with_task(item), TEXT_CHARS)}"


def facts_line(item: StoredItem) -> str:
    """Return source, owner, confidence, age, expiry, taint and contradiction of an item on one line."""
    now = datetime.now(UTC)
    parts = [
        f"from {terminal_line(item.provenance.source, NAME_CHARS)}" if item.provenance.source else "",
        f"run {terminal_line(item.provenance.workflow_id, NAME_CHARS)}" if item.provenance.workflow_id else "",
        f"of the directory {terminal_line(item.directory, NAME_CHARS) or '.'}" if item.kind == "convention" else "",
        owner_text(item),
        f"confidence {item.confidence:g}",
        f"{age(item.stored_at, now)} old",
        expiry_text(item, now),
        f"tainted by {terminal_line(', '.join(item.provenance.taint), NAME_CHARS)}" if item.provenance.taint else "",
        f"contradicted by {full_field_text(item.contradicted_by)}" if item.contradicted_by else "",
    ]
    return ", ".join(filter(None, parts))


def owner_text(item: KnowledgeItem) -> str:
    """Return an owner such as `user ada of tenant shop`, `global` or `no tenant's`."""
    name = {"user": item.owner.user, "agent": item.owner.agent}.get(item.scope, "")
    who = f"{item.scope} {terminal_line(name, NAME_CHARS)}" if name else ""
    tenant = f"tenant {terminal_line(item.owner.tenant, NAME_CHARS)}" if item.owner.tenant else ""
    if not who and not tenant:
        return "global" if item.scope == "global" else "no tenant's"
    return " of ".join(filter(None, (who, tenant)))


def expiry_text(item: KnowledgeItem, now: datetime) -> str:
    """Return `expires` or `expired` and the time. Return "" if the item never expires."""
    if item.expires_at is None:
        return ""
    return f"{'expired' if item.expires_at <= now else 'expires'} {item.expires_at.isoformat(timespec='minutes')}"


def _noun(kind: KnowledgeKind, count: int) -> str:
    if kind == "document":
        return "part of a document" if count == 1 else "parts of documents"
    return kind if count == 1 else _PLURALS.get(kind, f"{kind}s")
