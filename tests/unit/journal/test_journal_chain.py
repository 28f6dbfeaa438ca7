"""The hash chain of the journal shows where an exported journal was changed."""

import json
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from orga.workflows.decisions.journal.entries import entry_hash, first_break
from orga.workflows.types.status import JournalEntry
from tests.support.values.core import at
from tests.support.values.strategies import LAW, json_values, texts

entries_made = st.lists(
    st.tuples(texts, st.integers(0, 99), st.dictionaries(texts, json_values, max_size=2)), min_size=1, max_size=6
)


def chain(made: list[tuple[str, int, dict[str, Any]]]) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    previous = ""
    for sequence, (event, iteration, data) in enumerate(made):
        entry = JournalEntry(
            sequence=sequence, timestamp=at(sequence), agent="a", iteration=iteration, event=event, data=data
        )
        previous = entry_hash(previous, entry)
        entries.append(entry.model_copy(update={"hash": previous}))
    return entries


@LAW
@given(entries_made)
def test_an_unchanged_chain_has_no_break_even_after_export_and_import(made: list[Any]) -> None:
    entries = chain(made)
    assert first_break(entries) is None
    assert first_break(JournalEntry.model_validate_json(entry.model_dump_json()) for entry in entries) is None


@LAW
@given(entries_made, st.data())
def test_an_edit_of_any_field_breaks_the_chain_at_its_entry(made: list[Any], data: st.DataObject) -> None:
    entries = chain(made)
    index = data.draw(st.integers(0, len(entries) - 1), "index")
    field = data.draw(st.sampled_from(sorted(JournalEntry.model_fields)), "field")
    entry = entries[index]
    changes: dict[str, st.SearchStrategy[Any]] = {
        "sequence": st.integers(0, 99),
        "timestamp": st.integers(100, 200).map(at),
        "iteration": st.integers(0, 99),
        "data": st.dictionaries(texts, json_values, max_size=2),
    }
    value = data.draw(changes.get(field, texts), "value")
    assume(_as_json(value) != _as_json(getattr(entry, field)))
    entries[index] = entry.model_copy(update={field: value})
    assert first_break(entries) == (value if field == "sequence" else index)


@LAW
@given(entries_made, st.data())
def test_a_swap_or_a_removal_breaks_the_chain_at_its_entry(made: list[Any], data: st.DataObject) -> None:
    assume(len(made) > 1)
    entries = chain(made)
    index = data.draw(st.integers(0, len(entries) - 2), "index")
    dropped = [*entries[:index], *entries[index + 1 :]]
    swapped = [*entries[:index], entries[index + 1], entries[index], *entries[index + 2 :]]
    repeated = [*entries[: index + 1], *entries[index:]]
    assert first_break(dropped) == index + 1
    assert first_break(swapped) == index + 1
    assert first_break(repeated) == index


def _as_json(value: Any) -> str:
    return json.dumps(value, default=str)
