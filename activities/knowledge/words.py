"""Splits texts and queries into words. All stores use the same words, so they all rank alike."""

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar
from unicodedata import combining, normalize

from orga.workflows.types.knowledge import KnowledgeItem
from orga.workflows.types.recall import COMMON_WORDS

T = TypeVar("T")

MAX_TERMS = 24
"""Words of a query that a store searches for."""

STOP_WORDS = COMMON_WORDS | {"further"}
"""Stored vectors were computed without these words, so the set must not change. `COMMON_WORDS` lacks `further`."""

_WORD = re.compile(r"[^\W_]+")


def text_words(text: str) -> list[str]:
    """Return the words in order: letters and digits, without case or accents, as SQLite's `unicode61` splits them."""
    if not text.isascii():
        text = "".join(letter for letter in normalize("NFKD", text) if not combining(letter))
    return _WORD.findall(text.casefold())


def query_terms(text: str) -> tuple[str, ...]:
    """Return the words of a query, each once. If others remain, leave out stop words and single ASCII characters."""
    words = list(dict.fromkeys(text_words(text)))
    content_words = [word for word in words if word not in STOP_WORDS and (len(word) > 1 or not word.isascii())]
    return tuple((content_words or words)[:MAX_TERMS])


MAX_CACHED_CHARS = 100
"""Characters of a word whose result is cached. Longer ones, such as pictures as text, would fill the memory."""


def cached_by_word(function: Callable[[str], T]) -> Callable[[str], T]:
    """Return a function of one word whose results are cached, except those of very long words."""
    cached = lru_cache(maxsize=65_536)(function)

    @wraps(function)
    def result(word: str) -> T:
        return cached(word) if len(word) <= MAX_CACHED_CHARS else function(word)

    return result


@cached_by_word
def stem(word: str) -> str:
    """Return a word without common English endings, so that plurals are found. It keeps at least three letters."""
    if len(word) <= 3 or not word.isascii():
        return word
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("edly", ""), ("ed", ""), ("ly", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + replacement
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
                return word[:-1]  # `stop` for `stopp`
            return word[:-1] if word.endswith("e") and len(word) > 4 else word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def searchable_text(item: KnowledgeItem) -> str:
    """Return the text that searches read: the item's own text, and the labels that are not in it."""
    return f"{item.text} {label_text(item)}".rstrip()


def text_with_task(item: KnowledgeItem) -> str:
    """Return the text of an item. A memory's begins with the task that it was learnt from, which searches ignore."""
    return f"Task: {item.subject}\n{item.text}" if item.kind == "memory" and item.subject else item.text


def label_text(item: KnowledgeItem) -> str:
    """Return the labels that are not in the text: the parts of a fact, the directory, the language."""
    subject = "" if item.kind == "memory" else item.subject
    labels = (subject, item.predicate, item.object, item.directory, item.language)
    return " ".join(label for label in labels if label and label not in item.text)
