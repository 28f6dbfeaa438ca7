"""Splits texts into words with SQLite's own tokenizer, so that both stores find the same words.

PostgreSQL's parser keeps addresses, paths and hyphenated words whole, and its dictionaries use other stems.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import sha256
from threading import Lock

MAX_WORD_BYTES = 2_046
"""PostgreSQL's limit for one word."""

_PLACE_PREFIX = "place:"
"""Prefix of a place: the scope and owner of an item, as a word of the same index."""

_LONG_WORD_PREFIX = "long:"
"""Prefix of a digest that replaces a long word. No real word has a colon."""


class WordTokenizer:
    """Splits texts, one call at a time. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._opened: sqlite3.Connection | None = None

    def tokenize(self, texts: Sequence[str]) -> list[frozenset[str]]:
        """Return the words of each text."""
        found: list[set[str]] = [set() for _ in texts]
        with self._lock:
            database = self._memory_database()
            database.execute("BEGIN")
            database.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))
            for number, word in database.execute("SELECT doc, term FROM words"):
                found[int(number)].add(_bounded_word(str(word)))
            database.execute("ROLLBACK")
        return list(map(frozenset, found))

    def close(self) -> None:
        """Free the memory. The next `tokenize` allocates it again."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._opened = None

    def _memory_database(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            self._opened.execute(
                "CREATE VIRTUAL TABLE texts USING fts5 (text, content='', tokenize='porter unicode61')"
            )
            self._opened.execute("CREATE VIRTUAL TABLE words USING fts5vocab (texts, 'instance')")
        return self._opened


def words_tsvector(words: frozenset[str], place: str) -> str:
    """Return a `tsvector` of the words and the place, so that one index finds both."""
    return " ".join(map(quoted_word, (f"{_PLACE_PREFIX}{place}", *sorted(words))))


def any_words_query(words: Iterable[str], places: Sequence[str]) -> str:
    """Return a `tsquery` for items at one of the places with any of the words."""
    return f"{_places_query(places)} & ({' | '.join(map(quoted_word, words))})"


def all_words_query(words: Iterable[str], places: Sequence[str]) -> str:
    """Return a `tsquery` for items at one of the places with all of the words."""
    return f"{_places_query(places)} & {' & '.join(map(quoted_word, words))}"


def quoted_word(word: str) -> str:
    """Return a word quoted for `tsvector` and `tsquery`."""
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _bounded_word(word: str) -> str:
    """Return a word, or the digest of one that is too long."""
    return word if len(word.encode()) <= MAX_WORD_BYTES else f"{_LONG_WORD_PREFIX}{sha256(word.encode()).hexdigest()}"


def _places_query(places: Sequence[str]) -> str:
    return f"({' | '.join(quoted_word(_PLACE_PREFIX + place) for place in places)})"
