"""Items as rows of a table, and back: the same columns in every store."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orga.activities.knowledge.identity import claim_of
from orga.activities.knowledge.scopes import place_of
from orga.activities.knowledge.words import label_text
from orga.workflows.types.knowledge import Provenance, Reader, StoredItem

COLUMNS = (
    *("id", "place", "claim", "kind", "text", "labels", "scope", "tenant", "user", "agent", "key", "subject"),
    *("predicate", "object", "directory", "language", "confidence", "source", "workflow_id", "iteration", "model"),
    *("taint", "expires_at", "stored_at", "contradicted_by"),
)
"""Of the table `items`, in the order of a row."""

UNTAINTED = "[]"
"""The value of `taint` of a clean item."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = ("kind", "text", "scope", "key", "subject", "predicate", "object", "directory", "language", "confidence")


class DamagedItem(ValueError):
    """A row with values that nobody has stored: of no such kind, of no JSON."""


def row_of(item: StoredItem) -> tuple[object, ...]:
    """Return the values of the columns, in order."""
    provenance = item.provenance
    return (
        *(
            item.id,
            place_of(item.scope, item.owner),
            claim_of(item),
            item.kind,
            item.text,
            label_text(item),
            item.scope,
        ),
        *(item.owner.tenant, item.owner.user, item.owner.agent, item.key, item.subject, item.predicate, item.object),
        *(item.directory, item.language, item.confidence, provenance.source, provenance.workflow_id),
        *(provenance.iteration, provenance.model, json.dumps(provenance.taint)),
        *(None if item.expires_at is None else micros(item.expires_at), micros(item.stored_at), item.contradicted_by),
    )


def item_of(row: Sequence[Any]) -> StoredItem:
    """Return the item of a row of these columns; what follows them is left out.

    Raises:
        DamagedItem: It holds none.
    """
    value: dict[str, Any] = dict(zip(COLUMNS, row, strict=False))
    try:
        return _item(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise DamagedItem(f"the item {value['id']!r} has values that no item has") from error


def micros(time: datetime) -> int:
    """Return the microseconds since 1970."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def _item(value: dict[str, Any]) -> StoredItem:
    return StoredItem(
        **{name: value[name] for name in _PLAIN},
        owner=Reader(tenant=value["tenant"], user=value["user"], agent=value["agent"]),
        provenance=Provenance(
            source=value["source"],
            workflow_id=value["workflow_id"],
            iteration=value["iteration"],
            model=value["model"],
            taint=tuple(json.loads(value["taint"])),
        ),
        expires_at=None if value["expires_at"] is None else _time(value["expires_at"]),
        id=value["id"],
        stored_at=_time(value["stored_at"]),
        contradicted_by=value["contradicted_by"],
    )


def _time(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)
