"""Notes: what a run decided by itself, written into its history for the journal."""

from typing import Any

from workflows.types.record import Record

NOTES_MEMO = "orga_notes"
"""The memo key whose every upsert holds the notes since the upsert before."""


class Note(Record):
    """An entry of the journal that no activity stands for."""

    event: str
    """`RecoveryTriggered`, `StepLimitReached`, `CircuitOpened`, ..."""
    data: dict[str, Any] = {}
