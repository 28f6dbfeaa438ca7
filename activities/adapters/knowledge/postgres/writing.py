"""Adds, updates and removes items in PostgreSQL. Each call runs in a transaction of the only writer."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from orga.activities.adapters.knowledge.postgres.schema import (
    COLUMN_NAMES,
    PLACEHOLDERS,
    SELECTED_COLUMNS,
    UPDATED_COLUMNS,
    PostgresConnection,
    code_bits,
    vector_text,
)
from orga.activities.adapters.knowledge.postgres.words import words_tsvector
from orga.activities.adapters.knowledge.rows import UNTAINTED, epoch_micros, item_row, row_item
from orga.activities.knowledge.arrival import MAX_SETTLED_FACTS, arrival_change, contradictions, replacement_item
from orga.activities.knowledge.erasing import exact_columns, matching_subjects
from orga.activities.knowledge.identity import claim_digest, scope_place
from orga.activities.knowledge.vectors import vector_code
from orga.activities.knowledge.words import searchable_text
from orga.workflows.types.knowledge import Erasure, KnowledgeKind, Stored, StoredItem


class ArrivalBatch:
    """A batch of arriving items. Afterwards, `changed_items` and `marked_items` are the changes to the tables."""

    def __init__(self, known: Iterable[StoredItem]) -> None:
        """Keep the stored items, in order of arrival: those with the batch's ids, and the newest of its claims."""
        self._items: dict[str, StoredItem] = {}
        self._places: dict[str, int] = {}
        self._claims: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for item in known:
            self._remember(item)
        self._changed: dict[str, bool] = {}

    @property
    def changed_items(self) -> list[StoredItem]:
        """New and changed items, in the order in which they came."""
        return [self._items[id_] for id_, is_written in self._changed.items() if is_written]

    @property
    def marked_items(self) -> list[StoredItem]:
        """Items of which only the contradicting fact has changed."""
        return [self._items[id_] for id_, is_written in self._changed.items() if not is_written]

    def add_item(self, item: StoredItem) -> Stored:
        """Add the next item, and return what is done with it."""
        old = self._items.get(item.id)
        what = arrival_change(old, item)
        if what == "unchanged":
            return Stored(id=item.id, change=what)
        if old is not None:
            self._claims[claim_digest(old)].pop(item.id, None)
        self._remember(replacement_item(old, item))
        self._changed[item.id] = True
        return Stored(id=item.id, change=what, contradicts=self._resolve_claim(claim_digest(item), item.id))

    def _remember(self, item: StoredItem) -> None:
        self._items[item.id] = item
        self._places.setdefault(item.id, len(self._places))
        if claim := claim_digest(item):
            self._claims[claim][item.id] = None

    def _resolve_claim(self, claim: str, arriving: str) -> tuple[str, ...]:
        """Update which fact of a claim holds, and return the facts that the arriving one newly contradicts."""
        facts = self._newest_facts(claim, arriving) if claim else []
        news = {
            id_: newer
            for id_, newer in contradictions(facts, arriving).items()
            if self._items[id_].contradicted_by != newer
        }
        for id_, newer in news.items():
            self._items[id_] = self._items[id_].with_contradiction(newer)
            self._changed.setdefault(id_, False)
        return tuple(sorted(id_ for id_, newer in news.items() if newer == arriving))

    def _newest_facts(self, claim: str, arriving: str) -> list[StoredItem]:
        """Return a claim's newest facts, the newest clean one, and the arriving one. At equal times, later is newer."""
        facts = [self._items[id_] for id_ in self._claims[claim]]
        facts.sort(key=lambda fact: (fact.stored_at, self._places[fact.id]), reverse=True)
        clean = next((fact.id for fact in facts if not fact.provenance.taint), arriving)
        return facts[:MAX_SETTLED_FACTS] + [fact for fact in facts[MAX_SETTLED_FACTS:] if fact.id in {arriving, clean}]


_STORED_ITEMS = sql.SQL(
    "SELECT {} FROM orga_knowledge.items WHERE number IN ("
    "SELECT number FROM orga_knowledge.items WHERE id = ANY(%s) "
    "UNION SELECT newest.number FROM unnest(%s::text[]) AS asked (claim) CROSS JOIN LATERAL ("
    "SELECT number FROM orga_knowledge.items WHERE items.claim = asked.claim AND items.claim != '' "
    "ORDER BY stored_at DESC, number DESC LIMIT %s) AS newest "
    "UNION SELECT clean.number FROM unnest(%s::text[]) AS asked (claim) CROSS JOIN LATERAL ("
    "SELECT number FROM orga_knowledge.items WHERE items.claim = asked.claim AND items.claim != '' "
    "AND items.taint = {} ORDER BY stored_at DESC, number DESC LIMIT 1) AS clean"
    ") ORDER BY number"
).format(SELECTED_COLUMNS, sql.Literal(UNTAINTED))
_INSERT = sql.SQL(
    "INSERT INTO orga_knowledge.items ({}, words) VALUES ({}, %s::text::tsvector) ON CONFLICT (id) DO UPDATE SET {}"
).format(COLUMN_NAMES, PLACEHOLDERS, UPDATED_COLUMNS)
_MARK = "UPDATE orga_knowledge.items SET contradicted_by = %s WHERE id = %s"
_KEEP_VECTOR = (
    "INSERT INTO orga_knowledge.vectors (number, place, kind, expires_at, embedder, code, vector) "
    "SELECT number, place, kind, expires_at, %s, %s::text::bit(512), %s::text::vector FROM orga_knowledge.items "
    "WHERE id = %s"
)


@dataclass(frozen=True)
class PostgresVectors:
    """Vectors of one embedder, ready to write: code and numbers by text."""

    embedder: str
    of: dict[str, tuple[str, str]]


def encoded_vectors(embedder: str, found: Mapping[str, Sequence[float]]) -> PostgresVectors:
    """Return vectors ready to write. A thousand take a second, so do not call it in the event loop."""
    return PostgresVectors(
        embedder, {text: (code_bits(vector_code(vector)), vector_text(vector)) for text, vector in found.items()}
    )


async def read_stored_items(
    connection: PostgresConnection, ids: Sequence[str], claims: Sequence[str] = ()
) -> dict[str, StoredItem]:
    """Return the items of these ids, and the newest and the newest clean ones of these claims, in order of arrival."""
    asked = list(set(claims))
    cursor = await connection.execute(_STORED_ITEMS, (list(ids), asked, MAX_SETTLED_FACTS, asked))
    return {item.id: item for item in map(row_item, await cursor.fetchall())}


async def store_items(
    connection: PostgresConnection,
    items: Sequence[StoredItem],
    vectors: PostgresVectors,
    words: dict[str, frozenset[str]],
) -> list[Stored]:
    """Store items, and return what was done with each. Without a vector, an item is found by words until `reindex`.

    Args:
        connection: The only writer's connection.
        items: In the order in which they came.
        vectors: Vectors of new and changed items.
        words: The words of each text.
    """
    claims = [claim for item in items if (claim := claim_digest(item))]
    arrivals = ArrivalBatch((await read_stored_items(connection, [item.id for item in items], claims)).values())
    stored = [arrivals.add_item(item) for item in items]
    await _write(connection, arrivals.changed_items, vectors, words)
    await _mark_contradicted(connection, arrivals.marked_items)
    return stored


async def keep_vectors(connection: PostgresConnection, items: Sequence[StoredItem], vectors: PostgresVectors) -> None:
    """Store the vectors of items that have not changed or gone meanwhile."""
    known = await read_stored_items(connection, [item.id for item in items])
    await _give_vectors(connection, [item for item in items if known.get(item.id) == item], vectors)


async def erase(connection: PostgresConnection, what: Erasure) -> dict[KnowledgeKind, int]:
    """Erase items that match all conditions. Facts that only these contradicted hold again."""
    condition, values = await _erasure_condition(connection, what)
    gone = await (
        await connection.execute(
            sql.SQL("DELETE FROM orga_knowledge.items WHERE {} RETURNING id, kind").format(condition),
            values,
        )
    ).fetchall()
    if not gone:
        return {}
    orphans = await connection.execute(
        "SELECT DISTINCT claim FROM orga_knowledge.items WHERE claim != '' AND contradicted_by = ANY(%s)",
        ([id_ for id_, _ in gone],),
    )
    await _restore_facts(connection, [claim for (claim,) in await orphans.fetchall()])
    return dict(sorted(Counter[KnowledgeKind](kind for _, kind in gone).items()))


async def _write(
    connection: PostgresConnection,
    items: Sequence[StoredItem],
    vectors: PostgresVectors,
    words: dict[str, frozenset[str]],
) -> None:
    rows = [
        (*item_row(item), words_tsvector(words[searchable_text(item)], scope_place(item.scope, item.owner)))
        for item in items
    ]
    async with connection.cursor() as cursor:
        await cursor.executemany(_INSERT, rows)
    await _give_vectors(connection, items, vectors)


async def _give_vectors(connection: PostgresConnection, items: Sequence[StoredItem], vectors: PostgresVectors) -> None:
    await connection.execute(
        "DELETE FROM orga_knowledge.vectors USING orga_knowledge.items "
        "WHERE items.number = vectors.number AND items.id = ANY(%s)",
        ([item.id for item in items],),
    )
    rows = [(vectors.embedder, *made, item.id) for item in items if (made := vectors.of.get(searchable_text(item)))]
    async with connection.cursor() as cursor:
        await cursor.executemany(_KEEP_VECTOR, rows)


async def _mark_contradicted(connection: PostgresConnection, items: Sequence[StoredItem]) -> None:
    async with connection.cursor() as cursor:
        await cursor.executemany(_MARK, [(item.contradicted_by, item.id) for item in items])


async def _restore_facts(connection: PostgresConnection, claims: Sequence[str]) -> None:
    facts = list((await read_stored_items(connection, [], claims)).values())
    for claim in claims:
        of = [fact for fact in facts if claim_digest(fact) == claim]
        before = {fact.id: fact.contradicted_by for fact in of}
        news = {id_: newer for id_, newer in contradictions(of, "").items() if before[id_] != newer}
        await _mark_contradicted(connection, [fact.with_contradiction(news[fact.id]) for fact in of if fact.id in news])


async def _erasure_condition(connection: PostgresConnection, what: Erasure) -> tuple[sql.Composed, list[Any]]:
    conditions: list[sql.Composable] = []
    values: list[Any] = []
    if what.ids:
        conditions.append(sql.SQL("id = ANY(%s)"))
        values.append(list(what.ids))
    if what.subject:
        cursor = await connection.execute("SELECT DISTINCT subject FROM orga_knowledge.items WHERE subject != ''")
        conditions.append(sql.SQL("subject = ANY(%s)"))
        values.append(matching_subjects([subject for (subject,) in await cursor.fetchall()], what.subject))
    for column, value in exact_columns(what).items():
        conditions.append(sql.SQL("{} = %s").format(sql.Identifier(column)))
        values.append(value)
    if what.tenant is not None:
        conditions.append(sql.SQL("tenant = %s AND scope != 'global'"))
        values.append(what.tenant)
    if what.expired_by is not None:
        conditions.append(sql.SQL("expires_at <= %s"))
        values.append(epoch_micros(what.expired_by))
    return sql.SQL(" AND ").join(conditions), values
