"""Parts that all stores share: the conversion of items to table rows and back, and the notice about missing vectors."""

import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orga.activities.knowledge.identity import claim_digest, scope_place
from orga.activities.knowledge.ranking import Candidate
from orga.activities.knowledge.words import label_text
from orga.workflows.types.knowledge import Provenance, Reader, StoredItem

COLUMNS = (
    *("id", "place", "claim", "kind", "text", "labels", "scope", "tenant", "user", "agent", "key", "subject"),
    *("predicate", "object", "directory", "language", "confidence", "source", "workflow_id", "iteration", "model"),
    *("taint", "expires_at", "stored_at", "contradicted_by"),
)
"""Columns of the table `items`, in the order of a row."""

UNTAINTED = "[]"
"""The value of `taint` of a clean item."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_COLUMNS = (
    "kind",
    "text",
    "scope",
    "key",
    "subject",
    "predicate",
    "object",
    "directory",
    "language",
    "confidence",
)


class DamagedItem(ValueError):
    """A row with values that nobody can have stored, such as an unknown kind or invalid JSON."""


def item_row(item: StoredItem) -> tuple[object, ...]:
    provenance = item.provenance
    return (
        *(
            item.id,
            scope_place(item.scope, item.owner),
            claim_digest(item),
            item.kind,
            item.text,
            label_text(item),
            item.scope,
        ),
        *(item.owner.tenant, item.owner.user, item.owner.agent, item.key, item.subject, item.predicate, item.object),
        *(item.directory, item.language, item.confidence, provenance.source, provenance.workflow_id),
        *(provenance.iteration, provenance.model, json.dumps(provenance.taint)),
        *(
            None if item.expires_at is None else epoch_micros(item.expires_at),
            epoch_micros(item.stored_at),
            item.contradicted_by,
        ),
    )


def row_item(row: Sequence[Any]) -> StoredItem:
    """Return the item of a row that begins with these columns. Raise DamagedItem if it holds no valid one."""
    value: dict[str, Any] = dict(zip(COLUMNS, row, strict=False))
    try:
        return _validated_item(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise DamagedItem(f"the item {value['id']!r} has values that no item has") from error


def epoch_micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _validated_item(value: dict[str, Any]) -> StoredItem:
    return StoredItem(
        **{name: value[name] for name in _PLAIN_COLUMNS},
        owner=Reader(tenant=value["tenant"], user=value["user"], agent=value["agent"]),
        provenance=Provenance(
            source=value["source"],
            workflow_id=value["workflow_id"],
            iteration=value["iteration"],
            model=value["model"],
            taint=tuple(json.loads(value["taint"])),
        ),
        expires_at=None if value["expires_at"] is None else _micros_time(value["expires_at"]),
        id=value["id"],
        stored_at=_micros_time(value["stored_at"]),
        contradicted_by=value["contradicted_by"],
    )


def _micros_time(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


_log = logging.getLogger(__name__)


class MissingVectorsNotice:
    """Warns once about found items without vectors of the current embedder, however many recalls find some."""

    def __init__(self, place: str, embedder: str) -> None:
        """Keep the names of the store and the current embedder for the warning."""
        self._place = place
        self._embedder = embedder
        self._is_logged = False

    def log_missing(self, found: Sequence[Candidate]) -> None:
        """Log a warning if vectors of the found items are missing."""
        missing = sum(candidate.vector is None for candidate in found)
        if missing and not self._is_logged:
            self._is_logged = True
            _log.warning(
                "the knowledge store %s: %d of %d found items have no vectors of the embedder %s, so they are found by "
                "their words only; make vectors with: orga knowledge reindex",
                self._place,
                missing,
                len(found),
                self._embedder,
            )
