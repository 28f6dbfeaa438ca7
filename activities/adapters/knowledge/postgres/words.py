"""Texts cut into words by SQLite's own tokenizer, so that the same words are found in both stores.

PostgreSQL's parser keeps addresses, paths and hyphenated words whole, and its dictionaries stem by another rule.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import sha256
from threading import Lock

MOST_BYTES = 2_046
"""Of a word, in PostgreSQL."""

_PLACE = "place:"
_LONG = "long:"
"""Before what is no word of a text: none of those has a colon."""


class Cutter:
    """Cuts; one text after the other, whichever threads ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._opened: sqlite3.Connection | None = None

    def cut(self, texts: Sequence[str]) -> list[frozenset[str]]:
        """Return the words of each text."""
        found: list[set[str]] = [set() for _ in texts]
        with self._lock:
            memory = self._memory()
            memory.execute("BEGIN")
            memory.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))
            for number, word in memory.execute("SELECT doc, term FROM words"):
                found[int(number)].add(_kept(str(word)))
            memory.execute("ROLLBACK")
        return list(map(frozenset, found))

    def close(self) -> None:
        """Let go of the memory; the next cut takes some again."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._opened = None

    def _memory(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            self._opened.execute(
                "CREATE VIRTUAL TABLE texts USING fts5 (text, content='', tokenize='porter unicode61')"
            )
            self._opened.execute("CREATE VIRTUAL TABLE words USING fts5vocab (texts, 'instance')")
        return self._opened


def vector_of(words: frozenset[str], place: str) -> str:
    """Return a `tsvector` of the words, and of the place, so that one index finds both."""
    return " ".join(map(quoted, (f"{_PLACE}{place}", *sorted(words))))


def some_of(words: Iterable[str], places: Sequence[str]) -> str:
    """Return a `tsquery` of what holds any of the words, at one of the places."""
    return f"{_at(places)} & ({' | '.join(map(quoted, words))})"


def all_of(words: Iterable[str], places: Sequence[str]) -> str:
    """Return a `tsquery` of what holds all of the words, at one of the places."""
    return f"{_at(places)} & {' & '.join(map(quoted, words))}"


def quoted(word: str) -> str:
    """Return a word as `tsvector` and `tsquery` read it."""
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _kept(word: str) -> str:
    """Return a word, or what stands for one that is too long."""
    return word if len(word.encode()) <= MOST_BYTES else f"{_LONG}{sha256(word.encode()).hexdigest()}"


def _at(places: Sequence[str]) -> str:
    return f"({' | '.join(quoted(_PLACE + place) for place in places)})"
