"""Delegated runs in the journal share one sequence and one chain. The timeline indents them."""

from datetime import timedelta
from typing import Any

import pytest

from orga.client.cli.inspect.journal import Timeline
from orga.client.journal.run_view import RunView
from orga.workflows.decisions.journal.entries import first_break
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.status import Happening, JournalEntry
from tests.support.values.core import T0
from tests.support.values.statuses import progress_after

CHILD, GRANDCHILD = "run.1.0", "run.1.0.2.0"


def an_entry(event: str, by: str = "lead", at_s: float = 0.0, iteration: int = 1, **data: Any) -> JournalEntry:
    at = T0 + timedelta(seconds=at_s)
    return JournalEntry(sequence=0, timestamp=at, agent=by, iteration=iteration, event=event, data=data)


def journal_of_child() -> list[JournalEntry]:
    """Return the journal of a delegate that had its own delegate."""
    fold = JournalFold()
    grandchild = an_entry("Terminated", "hand", reason="completed", run=GRANDCHILD)
    started = fold.feed(Happening("started", T0, 1, value=[{"task": "help", "agent": "helper"}]))
    ended = fold.feed(Happening("workflow_terminated", T0, 9, text="by hand"))
    return [*started, grandchild, *ended]


def test_entries_of_a_delegate_are_numbered_and_chained_in_the_journal_of_its_parent() -> None:
    fold = JournalFold()
    entries = fold.feed(Happening("started", T0, 1, value=[{"task": "lead", "agent": "lead"}]))
    entries += [fold.nested_entry(entry, CHILD) for entry in journal_of_child()]
    entries += fold.feed(Happening("workflow_terminated", T0, 9))

    assert [entry.sequence for entry in entries] == [0, 1, 2, 3, 4]
    assert [entry.agent for entry in entries] == ["lead", "helper", "hand", "helper", "lead"]
    assert [entry.data.get("run") for entry in entries] == [None, CHILD, GRANDCHILD, CHILD, None]
    assert first_break(entries) is None
    forged = entries[2].model_copy(update={"data": {**entries[2].data, "run": "another"}})
    assert first_break([*entries[:2], forged, *entries[3:]]) == 2


def a_family() -> list[JournalEntry]:
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    return [
        an_entry("Started", at_s=0, iteration=0, task="lead"),
        an_entry("DelegationStarted", at_s=1, workflow_id=CHILD, agent="helper", task="help\nme"),
        an_entry("Started", "helper", 1.5, 0, run=CHILD, task="help"),
        an_entry("DelegationStarted", "helper", 2, 2, run=CHILD, workflow_id=GRANDCHILD, agent="hand", task="dig"),
        an_entry("Terminated", "hand", 3, 1, run=GRANDCHILD, reason="error", detail="no spade"),
        an_entry(
            "DelegationEnded", "helper", 3, 2, run=CHILD, workflow_id=GRANDCHILD, reason="error", detail="no spade"
        ),
        an_entry("Terminated", "helper", 4, 2, run=CHILD, reason="completed", usage=usage),
        an_entry("DelegationEnded", at_s=4, workflow_id=CHILD, reason="completed", detail="", usage=usage),
        an_entry("Terminated", at_s=5, iteration=1, reason="completed", detail=""),
    ]


def test_the_timeline_indents_delegated_runs_and_counts_their_iterations_separately() -> None:
    timeline = Timeline()
    assert [line for entry in a_family() for line in timeline.lines(entry)] == [
        "    +0.000s Started               task: lead",
        "── iteration 1",
        "    +1.000s DelegationStarted     ⇢ helper: help me",
        "        +1.500s Started               task: help",
        "    ── iteration 2",
        "        +2.000s DelegationStarted     ⇢ hand: dig",
        "        ── iteration 1",
        "            +3.000s Terminated            error: no spade",
        "        +3.000s DelegationEnded       ✗ hand: error: no spade",
        "        +4.000s Terminated            completed",
        "    +4.000s DelegationEnded       ✓ helper: completed",
        "    +5.000s Terminated            completed",
    ]


def test_each_entry_has_the_depth_of_its_run() -> None:
    run = RunView()
    assert [run.take(entry).run.depth for entry in a_family()] == [0, 0, 1, 1, 2, 1, 1, 0, 0]


@pytest.mark.parametrize("upto", [pytest.param(7, id="while its delegate ends"), pytest.param(8, id="after that")])
def test_the_progress_of_a_run_follows_only_its_own_entries(upto: int) -> None:
    progress = progress_after(*a_family()[:upto])
    assert (progress.agent, progress.iteration, progress.phase) == ("lead", 1, "preparing")
    assert progress.tokens == (110 if upto == 8 else 0)
