"""Handmade journals with a correct chain."""

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from orga.workflows.decisions.journal.entries import entry_hash
from orga.workflows.types.status import JournalEntry
from tests.support.values.core import at
from tests.support.values.strategies import json_values, texts

Made = tuple[str, int, dict[str, Any]]
"""Event, iteration, data."""

journals: st.SearchStrategy[list[Made]] = st.lists(
    st.tuples(texts, st.integers(0, 99), st.dictionaries(texts, json_values, max_size=2)), min_size=2, max_size=6
)
"""The arguments of `a_journal`."""


def a_journal(made: Iterable[Made]) -> list[JournalEntry]:
    """Return entries, chained."""
    return rechained(
        JournalEntry(sequence=nth, timestamp=at(nth), agent="a", iteration=iteration, event=event, data=data)
        for nth, (event, iteration, data) in enumerate(made)
    )


def three() -> list[JournalEntry]:
    """Return the journal of a run that did nothing."""
    return a_journal([("Started", 0, {"task": "t"}), ("ReasoningComplete", 1, {}), ("Terminated", 1, {})])


def rechained(entries: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Return the entries numbered and chained again, as a forger would."""
    found: list[JournalEntry] = []
    previous = ""
    for sequence, entry in enumerate(entries):
        numbered = entry.model_copy(update={"sequence": sequence})
        previous = entry_hash(previous, numbered)
        found.append(numbered.model_copy(update={"hash": previous}))
    return found


def without_entry(entries: Sequence[JournalEntry], index: int) -> list[JournalEntry]:
    """Return the entries without one."""
    return [*entries[:index], *entries[index + 1 :]]
