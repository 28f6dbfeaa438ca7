"""One transaction of a knowledge store: the work that all databases share, and what each has to add to it.

Shared statements are written for PostgreSQL, with `%(name)s` for a value and `= ANY(%(name)s)` for a list.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from orga.activities.knowledge.arrival import ArrivalBatch, contradictions
from orga.activities.knowledge.identity import audience_digits, claim_digest, exact_columns, matching_subjects
from orga.activities.knowledge.ports import StoreFacts, batches
from orga.activities.knowledge.words import label_text
from orga.workflows.types.knowledge import Erasure, KnowledgeKind, Provenance, Reader, Stored, StoredItem

COLUMNS = (
    *("id", "place", "claim", "kind", "text", "labels", "scope", "tenant", "user", "agent", "key", "subject"),
    *("predicate", "object", "directory", "language", "confidence", "source", "workflow_id", "iteration", "model"),
    *("taint", "expires_at", "stored_at", "contradicted_by"),
)
"""Columns of the table `items`, in the order of a row. `place` is the audience."""

UNTAINTED = "[]"
"""The value of `taint` for a clean item."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_COLUMNS = (
    *("kind", "text", "scope", "key", "subject"),
    *("predicate", "object", "directory", "language", "confidence"),
)


class DamagedItem(ValueError):
    """A row with values that nobody can have stored, such as an unknown kind or invalid JSON."""


def item_row(item: StoredItem) -> tuple[object, ...]:
    owner, origin, audience = item.owner, item.provenance, audience_digits(item.scope, item.owner)
    expires_at = None if item.expires_at is None else epoch_micros(item.expires_at)
    return (
        *(item.id, audience, claim_digest(item), item.kind, item.text, label_text(item), item.scope),
        *(owner.tenant, owner.user, owner.agent, item.key, item.subject, item.predicate, item.object),
        *(item.directory, item.language, item.confidence, origin.source, origin.workflow_id),
        *(origin.iteration, origin.model, json.dumps(origin.taint)),
        *(expires_at, epoch_micros(item.stored_at), item.contradicted_by),
    )


def row_item(row: Sequence[Any]) -> StoredItem:
    """Return the item of a row that begins with `COLUMNS`. Raise DamagedItem if it is no valid item."""
    value: dict[str, Any] = dict(zip(COLUMNS, row, strict=False))

    def fields(*names: str) -> dict[str, Any]:
        return {name: value[name] for name in names}

    try:
        return StoredItem(
            **fields("id", "contradicted_by", *_PLAIN_COLUMNS),
            owner=Reader(**fields("tenant", "user", "agent")),
            provenance=Provenance(
                **fields("source", "workflow_id", "iteration", "model"), taint=tuple(json.loads(value["taint"]))
            ),
            expires_at=None if value["expires_at"] is None else _micros_time(value["expires_at"]),
            stored_at=_micros_time(value["stored_at"]),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise DamagedItem(f"the item {value['id']!r} has values that no item has") from error


def epoch_micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _micros_time(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


E = TypeVar("E")
"""A text as a database stores it: the vector, and also the words if the database cannot split texts itself."""

Values = Mapping[str, object]
Rows = list[tuple[Any, ...]]

SELECTED_COLUMNS = ", ".join(f'items."{name}"' for name in COLUMNS)
"""The columns that `row_item` reads."""

_BATCH = 500
"""Values in one list of a statement."""


class WordQueries(NamedTuple):
    """Queries in the database's own language."""

    each: list[str]
    """One for each word."""
    with_all: str
    with_any: str


class KnowledgeTransaction(ABC, Generic[E]):
    """Reads and writes the tables `items` and `vectors`. A subclass knows its database."""

    backend: ClassVar[str]
    schema_version: ClassVar[int]
    tables: ClassVar[str]
    """Prefix of the tables' names."""
    vector_column: ClassVar[str]
    byte_order: ClassVar[str]
    """The clause that sorts texts by their bytes."""
    without_index: ClassVar[str]
    """Prefix of a condition. It keeps the database from using an index to scan all items of an audience."""

    def __init__(self, embedder: str) -> None:
        self.embedder = embedder
        self._without_vector = (
            f"FROM {self.tables}items LEFT JOIN {self.tables}vectors ON vectors.number = items.number "
            "AND vectors.embedder = %(embedder)s WHERE vectors.number IS NULL"
        )

    @abstractmethod
    async def rows(self, statement: str, values: Values | None = None) -> Rows: ...

    async def execute_many(self, statement: str, many: Iterable[Values]) -> None:
        for values in many:
            await self.rows(statement, values)

    @abstractmethod
    async def newest_facts(self, claims: Sequence[str]) -> Rows:
        """Return the `MAX_SETTLED_FACTS` newest facts of each claim, and its newest clean fact, with their numbers."""

    @abstractmethod
    async def write_items(self, items: Sequence[StoredItem], encoded: Mapping[str, E]) -> None:
        """Insert new items or replace those with their ids, with their vectors."""

    @abstractmethod
    async def give_vectors(self, items: Sequence[StoredItem], encoded: Mapping[str, E]) -> None:
        """Replace the vectors of stored items."""

    @abstractmethod
    async def rebuild_words(self) -> None: ...

    @abstractmethod
    async def size_bytes(self) -> int: ...

    @abstractmethod
    def unpacked_vector(self, value: Any) -> Sequence[float] | None:
        """Return the vector in `vector_column`, if there is one."""

    @abstractmethod
    async def nearest_numbers(self, vector: Sequence[float], visible: Values, limit: int) -> list[int]:
        """Return the numbers of the items with the nearest vectors.

        Args:
            visible: The `audiences` and `kinds` of the wanted items, and the time `now` in microseconds. No item has
                expired then.
        """

    @abstractmethod
    def word_queries(self, text: str, audiences: Sequence[str]) -> WordQueries:
        """Return the queries for items of these audiences with words of a text."""

    @abstractmethod
    async def matching_numbers(self, queries: Sequence[str], limit: int) -> list[list[int]]:
        """Return, for each query, the numbers of at most `limit` items that match it."""

    @abstractmethod
    async def newest_matching(self, query: str, limit: int) -> list[int]: ...

    async def stored_items(self, ids: Iterable[str], claims: Iterable[str] = ()) -> dict[str, StoredItem]:
        """Return the items with these ids, and the `newest_facts` of these claims, in order of arrival.

        Claims may be empty or repeat.
        """
        rows = await self.newest_facts(list(dict.fromkeys(filter(None, claims))))
        statement = f"SELECT {SELECTED_COLUMNS}, number FROM {self.tables}items WHERE id = ANY(%(ids)s)"
        for part in batches(ids, _BATCH):
            rows += await self.rows(statement, {"ids": part})
        return {item.id: item for item in map(row_item, sorted(rows, key=lambda row: row[-1]))}

    async def page(
        self, kinds: Sequence[KnowledgeKind], source_prefix: str, after: str, limit: int
    ) -> list[StoredItem]:
        of_kinds = " AND kind = ANY(%(kinds)s)" if kinds else ""
        values = {"after": after, "length": len(source_prefix), "prefix": source_prefix, "limit": limit}
        rows = await self.rows(
            f"SELECT {SELECTED_COLUMNS} FROM {self.tables}items WHERE id > %(after)s "
            f"AND substr(source, 1, %(length)s) = %(prefix)s{of_kinds} ORDER BY id LIMIT %(limit)s",
            {**values, "kinds": list(kinds)},
        )
        return list(map(row_item, rows))

    async def store_items(self, items: Sequence[StoredItem], encoded: Mapping[str, E]) -> list[Stored]:
        """Store items in the given order, and return the result for each."""
        known = await self.stored_items([item.id for item in items], map(claim_digest, items))
        arrivals = ArrivalBatch(known.values())
        stored = [arrivals.add_item(item) for item in items]
        await self.write_items(arrivals.changed_items, encoded)
        await self._mark_contradicted(arrivals.marked_items)
        return stored

    async def keep_vectors(self, items: Sequence[StoredItem], encoded: Mapping[str, E]) -> None:
        """Store the vectors of items, except of those that were changed or erased meanwhile."""
        known = await self.stored_items(item.id for item in items)
        await self.give_vectors([item for item in items if known.get(item.id) == item], encoded)

    async def erase(self, what: Erasure) -> dict[KnowledgeKind, int]:
        """Erase items that match all conditions. Facts that only erased facts contradicted hold again."""
        condition, values = await self._erasure_condition(what)
        erased = await self.rows(f"DELETE FROM {self.tables}items WHERE {condition} RETURNING kind, id", values)
        claims_to_restore: dict[str, None] = {}
        for part in batches((id_ for _, id_ in erased), _BATCH):
            rows = await self.rows(
                f"SELECT DISTINCT claim FROM {self.tables}items "
                "WHERE claim != '' AND contradicted_by != '' AND contradicted_by = ANY(%(ids)s)",
                {"ids": part},
            )
            claims_to_restore.update((claim, None) for (claim,) in rows)
        for claims in batches(claims_to_restore, _BATCH):
            await self._restore_facts(claims)
        return dict(sorted(Counter[KnowledgeKind](kind for kind, _ in erased).items()))

    async def unindexed_items(self, limit: int) -> list[StoredItem]:
        statement = f"SELECT {SELECTED_COLUMNS} {self._without_vector} ORDER BY items.number LIMIT %(limit)s"
        return list(map(row_item, await self.rows(statement, {"embedder": self.embedder, "limit": limit})))

    async def count_unindexed(self) -> int:
        [(count,)] = await self.rows(f"SELECT count(*) {self._without_vector}", {"embedder": self.embedder})
        return int(count)

    async def facts(self, address: str, now: int) -> StoreFacts:
        """Return the facts at `now`, in microseconds. `address` is the file or the server as people see it."""
        names = await self.rows(f"SELECT DISTINCT embedder FROM {self.tables}vectors ORDER BY embedder")
        [(tainted, expired, contradicted)] = await self.rows(
            "SELECT count(*) FILTER (WHERE taint != '[]'), count(*) FILTER (WHERE expires_at <= %(now)s), "
            f"count(*) FILTER (WHERE contradicted_by != '') FROM {self.tables}items",
            {"now": now},
        )
        counts: dict[KnowledgeKind, int] = dict(
            await self.rows(f"SELECT kind, count(*) FROM {self.tables}items GROUP BY kind ORDER BY kind")
        )
        return StoreFacts(
            backend=self.backend,
            place=address,
            schema_version=self.schema_version,
            embedder=", ".join(name for (name,) in names) or self.embedder,
            counts=counts,
            tainted=tainted,
            expired=expired,
            contradicted=contradicted,
            unindexed=await self.count_unindexed(),
            size_bytes=await self.size_bytes(),
        )

    async def _mark_contradicted(self, items: Iterable[StoredItem]) -> None:
        await self.execute_many(
            f"UPDATE {self.tables}items SET contradicted_by = %(newer)s WHERE id = %(id)s",
            [{"newer": item.contradicted_by, "id": item.id} for item in items],
        )

    async def _restore_facts(self, claims: Sequence[str]) -> None:
        by_claim = defaultdict[str, list[StoredItem]](list)
        for fact in (await self.stored_items([], claims)).values():
            by_claim[claim_digest(fact)].append(fact)
        marked: list[StoredItem] = []
        for facts in by_claim.values():
            newer = contradictions(facts, "")
            changed = [fact for fact in facts if newer[fact.id] != fact.contradicted_by]
            marked += [fact.with_contradiction(newer[fact.id]) for fact in changed]
        await self._mark_contradicted(marked)

    async def _erasure_condition(self, what: Erasure) -> tuple[str, Values]:
        named = exact_columns(what)
        conditions, values = [f'"{column}" = %({column})s' for column in named], dict[str, object](named)
        if what.ids:
            conditions.append("id = ANY(%(ids)s)")
            values["ids"] = list(what.ids)
        if what.subject:
            known = await self.rows(f"SELECT DISTINCT subject FROM {self.tables}items WHERE subject != ''")
            conditions.append("subject = ANY(%(subjects)s)")
            values["subjects"] = matching_subjects((subject for (subject,) in known), what.subject)
        if what.tenant is not None:
            conditions.append("tenant = %(tenant)s AND scope != 'global'")
            values["tenant"] = what.tenant
        if what.expired_by is not None:
            conditions.append("expires_at <= %(expired_by)s")
            values["expired_by"] = epoch_micros(what.expired_by)
        return " AND ".join(conditions), values
