"""The knowledge store of a fleet: PostgreSQL with pgvector, shared by the workers of all machines."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from orga.activities.adapters.knowledge.postgres.connections import PostgresConnections
from orga.activities.adapters.knowledge.postgres.schema import PostgresAddress, code_bits, vector_text
from orga.activities.adapters.knowledge.postgres.transaction import EncodedText, PostgresTransaction
from orga.activities.adapters.knowledge.postgres.words import WordTokenizer
from orga.activities.adapters.knowledge.store import DatabaseStore, Work, utc_now
from orga.activities.knowledge.ports import Embedder
from orga.activities.knowledge.vectors import vector_code

T = TypeVar("T")


class PostgresStore(DatabaseStore[EncodedText]):
    """A `KnowledgeStore` in a database. Its tables are created when they are first needed."""

    def __init__(self, place: PostgresAddress, embedder: Embedder, *, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(place.place, embedder, now)
        self._connections = PostgresConnections(place)
        self._tokenizer = WordTokenizer()

    async def purge(self) -> None:
        """Remove deleted rows from the tables and indexes. The server's log and its backups do not belong to us.

        Raises:
            KnowledgeError: The database cannot be reached, or refuses.
        """
        async with self._connections.without_transaction() as connection:
            await connection.execute("VACUUM orga_knowledge.items, orga_knowledge.vectors")

    async def close(self) -> None:
        """Close the connections."""
        self._tokenizer.close()
        await self._connections.close()

    async def _read(self, work: Work[EncodedText, T]) -> T:
        async with self._connections.read_transaction() as connection:
            return await work(PostgresTransaction(connection, self._tokenizer, self._embedder.name))

    async def _write(self, work: Work[EncodedText, T]) -> T:
        async with self._connections.write_transaction() as connection:
            return await work(PostgresTransaction(connection, self._tokenizer, self._embedder.name))

    def _encoded(self, vectors: Mapping[str, Sequence[float]]) -> dict[str, EncodedText]:
        words = self._tokenizer.tokenize(list(vectors))
        return {
            text: (code_bits(vector_code(vector)), vector_text(vector), each)
            for (text, vector), each in zip(vectors.items(), words, strict=True)
        }
