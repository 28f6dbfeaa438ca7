"""Metrics of what workflow code decides: counted once, not again by a replay."""

from collections.abc import Iterable

from temporalio import workflow

from activities.instruments import count_opened_circuit
from workflows.types.notes import Note


def count_circuits(notes: Iterable[Note]) -> None:
    """Count the circuits that opened, as these new notes say."""
    if workflow.unsafe.is_replaying():
        return
    for note in notes:
        if note.event == "CircuitOpened":
            count_opened_circuit(note.data["tool"], "run")
