"""Items as rows of PostgreSQL: the columns of the embedded store, under names that SQL lets through."""

from array import array
from collections.abc import Sequence

from psycopg import sql

from orga.activities.adapters.knowledge.rows import COLUMNS
from orga.activities.knowledge.vectors import MAX_BITS

NAMES = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
SELECTED = sql.SQL(", ").join(sql.SQL("items.") + sql.Identifier(name) for name in COLUMNS)
"""To be read by `item_of`."""

MARKS = sql.SQL(", ").join([sql.Placeholder()] * len(COLUMNS))
CHANGED = sql.SQL(", ").join(
    sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in (*COLUMNS[1:], "words")
)


def bits(code: int) -> str:
    """Return a code as `bit(512)`."""
    return f"{code:0{MAX_BITS}b}"


def numbers(vector: Sequence[float]) -> str:
    """Return a `vector` whose numbers are those of 4 bytes that every store keeps."""
    return f"[{','.join(map(repr, array('f', vector)))}]"
