"""A journal that is read again brings what is new, and after a rewind what is other."""

from orga.client.journal.told import Told
from tests.unit.test_journal_chain import chain


def test_each_entry_is_told_once_and_a_rewound_run_from_where_it_parts() -> None:
    told = Told()
    first = chain([("A", 0, {}), ("B", 1, {}), ("C", 2, {})])
    second = chain([("A", 0, {}), ("X", 1, {}), ("C", 2, {})])
    assert [entry.event for entry in first[:2] if told.is_news(entry)] == ["A", "B"]
    assert [entry.event for entry in first if told.is_news(entry)] == ["C"]
    assert [entry.event for entry in second if told.is_news(entry)] == ["X", "C"]
    assert [entry.event for entry in first if told.is_news(entry)] == ["B", "C"]
