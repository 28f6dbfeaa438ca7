"""The chain of a journal: each entry's hash stands for it and for all before it."""

from collections.abc import Iterable
from hashlib import sha256

from pydantic_core import to_json

from workflows.types.journal import JournalEntry

GENESIS = ""
"""The hash before the first entry."""


def chained(previous: str, entry: JournalEntry) -> str:
    """Return the hash of an entry: sha256 over the hash before it and every field of its own."""
    return sha256(previous.encode() + _body(entry)).hexdigest()


def canonical_line(entry: JournalEntry) -> bytes:
    """Return an entry as it stands in an export: what is hashed, with the hash as its last field."""
    return _body(entry)[:-1] + b',"hash":"' + entry.hash.encode() + b'"}'


def _body(entry: JournalEntry) -> bytes:
    """Return the canonical form: the fields in their order, no spaces, UTF-8."""
    return to_json(entry.model_dump(mode="json", exclude={"hash"}))


def first_break(entries: Iterable[JournalEntry]) -> int | None:
    """Return the sequence of the first entry whose hash or number does not follow from those before it, or None."""
    previous = GENESIS
    for expected, entry in enumerate(entries):
        previous = chained(previous, entry)
        if entry.hash != previous or entry.sequence != expected:
            return entry.sequence
    return None
