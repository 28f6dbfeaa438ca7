"""Knowledge as lines for people."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import get_args

from orga.activities.knowledge.words import text_with_task
from orga.client.cli.ages import age
from orga.client.cli.terminal_text import on_one_line
from orga.workflows.types.knowledge import KnowledgeItem, KnowledgeKind, StoredItem
from orga.workflows.types.text import in_full

TEXT_CHARS = 300
NAME_CHARS = 200

_PLURALS: dict[KnowledgeKind, str] = {"memory": "memories"}
_PARTS = "parts of documents"


def counted(counts: Mapping[KnowledgeKind, int]) -> str:
    """Return `3 facts, 1 memory`, the kinds always in the same order."""
    kinds: tuple[KnowledgeKind, ...] = get_args(KnowledgeKind)
    parts = [f"{count:,} {_noun(kind, count)}" for kind in kinds if (count := counts.get(kind, 0))]
    return ", ".join(parts) or "nothing"


def headline(item: StoredItem) -> str:
    """Return kind, id and what it says, on a line."""
    return f"{item.kind:<10}  {in_full(item.id)}  {on_one_line(text_with_task(item), TEXT_CHARS)}"


def facts_line(item: StoredItem) -> str:
    """Return where an item comes from, whose it is, how sure, how old, and what speaks against it."""
    now = datetime.now(UTC)
    told = [
        f"from {on_one_line(item.provenance.source, NAME_CHARS)}" if item.provenance.source else "",
        f"run {on_one_line(item.provenance.workflow_id, NAME_CHARS)}" if item.provenance.workflow_id else "",
        f"of the directory {on_one_line(item.directory, NAME_CHARS) or '.'}" if item.kind == "convention" else "",
        whose(item),
        f"confidence {item.confidence:g}",
        f"{age(item.stored_at, now)} old",
        expiry(item, now),
        f"tainted by {on_one_line(', '.join(item.provenance.taint), NAME_CHARS)}" if item.provenance.taint else "",
        f"contradicted by {in_full(item.contradicted_by)}" if item.contradicted_by else "",
    ]
    return ", ".join(filter(None, told))


def whose(item: KnowledgeItem) -> str:
    """Return the scope and its owner."""
    named = {"user": item.owner.user, "agent": item.owner.agent}.get(item.scope, "")
    who = f"{item.scope} {on_one_line(named, NAME_CHARS)}" if named else ""
    tenant = f"tenant {on_one_line(item.owner.tenant, NAME_CHARS)}" if item.owner.tenant else ""
    return " of ".join(filter(None, (who, tenant))) or ("global" if item.scope == "global" else "no tenant's")


def expiry(item: KnowledgeItem, now: datetime) -> str:
    """Return when it expires; empty for never."""
    if item.expires_at is None:
        return ""
    return f"{'expired' if item.expires_at <= now else 'expires'} {item.expires_at.isoformat(timespec='minutes')}"


def _noun(kind: KnowledgeKind, count: int) -> str:
    if kind == "document":
        return "part of a document" if count == 1 else _PARTS
    return kind if count == 1 else _PLURALS.get(kind, f"{kind}s")
