"""What PostgreSQL's errors mean to people: the place, the cause and the way back, and never the password."""

from collections.abc import Generator
from contextlib import contextmanager

import psycopg

from orga.activities.adapters.knowledge.postgres.address import Address
from orga.activities.adapters.knowledge.rows import DamagedItem
from orga.activities.adapters.models.redaction import redacted
from orga.activities.knowledge.ports import KnowledgeError

_BUSY = {"53300": "has no connection left", "40001": "is busy", "40P01": "is busy", "55P03": "is busy"}
_NO_EXTENSION = {"0A000", "58P01"}

_TOLD: dict[str, tuple[str, str]] = {
    "53100": ("DiskFull", "{store} has no room left; nothing was stored: make room on its server"),
    "53200": ("DiskFull", "{store} has no memory left; nothing was stored: make room on its server"),
    "XX002": ("Corrupt", "an index of {store} is damaged; run: orga knowledge reindex"),
    "XX001": (
        "Corrupt",
        "{store} is damaged ({cause}); restore the database from its last backup, or save what can still be read (orga "
        "knowledge export FILE) and import it into an empty one",
    ),
    "25006": ("ReadOnly", "{store} cannot be written, as a replica cannot; correct the address in {variable}"),
    "42501": (
        "Unreachable",
        "{store} does not let this user do it ({cause}); grant it, or name another user in {variable}",
    ),
}
"""Kind and text by SQLSTATE."""


@contextmanager
def told(place: Address) -> Generator[None]:
    """Raise a `KnowledgeError` for each error of PostgreSQL, of its connection, of a time limit, or of values."""
    try:
        yield
    except DamagedItem as error:
        raise KnowledgeError(
            f"the knowledge store {place.place} is damaged ({error}); restore the database from its last backup, or "
            "let go of the item: orga knowledge forget --id ID",
            kind="Corrupt",
        ) from error
    except psycopg.Error as error:
        raise knowledge_error(error, place) from None  # its text and its connection hold the address
    except TimeoutError:
        raise _unreachable(place, "no answer in time") from None
    except UnicodeEncodeError:
        raise KnowledgeError("a text holds characters that no database takes", kind="InvalidItem") from None


def knowledge_error(error: psycopg.Error, place: Address) -> KnowledgeError:
    """Return the failure by its SQLSTATE; what has none is one of the connection."""
    state, store = error.sqlstate or "", f"the knowledge store {place.place}"
    cause = redacted(str(error), place.password) or type(error).__name__
    if state in _TOLD:
        kind, text = _TOLD[state]
        message = text.format(store=store, cause=cause, variable=place.variable)
        return KnowledgeError(message, kind=kind, retryable=kind == "DiskFull")
    if state in _BUSY:
        return KnowledgeError(f"{store} {_BUSY[state]}; try again", kind="Busy", retryable=True)
    if isinstance(error, psycopg.OperationalError) or not state:
        return _unreachable(place, cause)
    return KnowledgeError(f"{store} failed: {cause}; look at its log, then try again", kind="Unreachable")


def without_extension(place: Address, error: psycopg.Error) -> KnowledgeError:
    """Return what is said where pgvector is not there, or may not be made."""
    if error.sqlstate in _NO_EXTENSION:
        remedy = "install pgvector on its server, as the image pgvector/pgvector has it"
    else:
        remedy = "let an administrator run there: CREATE EXTENSION vector"
    cause = redacted(str(error), place.password)
    return KnowledgeError(f"the knowledge store {place.place} lacks pgvector ({cause}); {remedy}", kind="Unreachable")


def _unreachable(place: Address, cause: str) -> KnowledgeError:
    return KnowledgeError(
        f"the knowledge store {place.place} cannot be reached: {cause}; start its server, or correct the address in "
        f"{place.variable}",
        kind="Unreachable",
        retryable=True,
    )
