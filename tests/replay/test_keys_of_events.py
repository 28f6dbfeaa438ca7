"""The reference names the data keys of each event: those in recorded journals and those written by the code."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orga.client.history.events import read_events
from orga.client.history.values import converters_in, data_converter
from orga.client.journal.event_types import EVENTS, JournalEvent, read_event
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.status import JournalEntry
from tests.replay.test_histories import HISTORIES, history_in
from tests.support.values.entries import an_entry

CODE = Path(__file__).parents[2] / "workflows"

NAMED = {event: {*kind.data_keys()} for event, kind in EVENTS.items()}


@pytest.fixture(scope="module")
async def entries() -> list[JournalEntry]:
    """Return the entries of all recorded journals."""
    found: list[JournalEntry] = []
    for path in HISTORIES:
        journal = JournalFold()
        history = history_in(path)
        async for happening in read_events(converters_in(history, data_converter, "default"), history.events):
            found += journal.feed(happening)
    return found


@pytest.fixture(scope="module")
def recorded(entries: list[JournalEntry]) -> dict[str, set[str]]:
    """Return the keys of each event in all recorded journals."""
    found = defaultdict[str, set[str]](set)
    for entry in entries:
        found[entry.event] |= entry.data.keys()
    return found


def _noted() -> Iterator[tuple[str, str]]:
    """Yield event and key of each note written with literal names: in `with_note(…)`, or passed to `change(…)`."""
    for path in CODE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and any(
                each == "with_note" for each in map(_name, (node.func, *node.args[:1]))
            ):
                named = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
                yield from ((str(event), key.arg) for event in named for key in node.keywords if key.arg)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def _words(path: Path) -> Iterator[str]:
    """Yield the texts of a module and the names of its arguments and fields."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_the_reference_has_every_recorded_key(recorded: dict[str, set[str]]) -> None:
    assert {event: keys - NAMED[event] for event, keys in recorded.items() if keys - NAMED[event]} == {}


def test_the_reference_has_every_key_written_by_the_code() -> None:
    noted = [*_noted()]
    assert ("ContextCompacted", "strategy") in noted
    assert [(event, key) for event, key in noted if key not in NAMED[event]] == []


def test_every_key_of_the_reference_is_written_somewhere(recorded: dict[str, set[str]]) -> None:
    """A key without a recording is in the code that decides, or in the values that it writes."""
    written = {word for path in CODE.rglob("*.py") for word in _words(path)}
    lacking = {event: keys - recorded.get(event, set()) - written for event, keys in NAMED.items()}
    assert {event: keys for event, keys in lacking.items() if keys} == {}
    assert "no_such_key" not in written


def test_a_typed_event_keeps_every_recorded_key_and_value(entries: list[JournalEntry]) -> None:
    lost = [
        (entry.event, entry.data)
        for entry in entries
        if type(event := read_event(entry)) is not EVENTS[entry.event]
        or event.model_dump(mode="json", by_alias=True, exclude_unset=True) != entry.data
    ]
    assert lost == []


@pytest.mark.parametrize("wrong", [None, "x", 1.5, True, [None], [["x"]], {"x": {"y": 1}}, [{"tool": [], "score": {}}]])
def test_a_value_of_any_type_can_be_read(wrong: Any) -> None:
    for name, kind in EVENTS.items():
        data = dict.fromkeys([*kind.data_keys(), "run", "later"], wrong)
        event = read_event(an_entry(name).with_sequence(0, data))
        assert isinstance(event, kind)
        assert event.model_extra == {"later": wrong}


def test_an_event_of_a_later_version_keeps_its_data() -> None:
    event = read_event(an_entry("FromTheFuture", a=1))
    assert type(event) is JournalEvent
    assert event.model_extra == {"a": 1}
