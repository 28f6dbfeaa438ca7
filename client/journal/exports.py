"""An exported journal beside the one that the histories give."""

from collections.abc import Sequence

from orga.client.journal.checks import Check
from orga.workflows.decisions.journal_entries import first_break
from orga.workflows.types.status import JournalEntry


def export_check(workflow_id: str, exported: Sequence[JournalEntry], entries: Sequence[JournalEntry]) -> Check:
    """Compare entry by entry. The export of a live run may end early, that of one that has ended may not."""

    def found(ok: bool, detail: str) -> Check:
        return Check("export", workflow_id, ok, detail)

    if (broken := first_break(exported)) is not None:
        return found(False, f"its chain breaks at entry {broken}: it or one before it was changed")
    for entry, recorded in zip(exported, entries, strict=False):
        if entry.hash != recorded.hash:
            return found(False, f"entry {entry.sequence} differs from the history in {_differing(entry, recorded)}")
    if len(exported) > len(entries):
        return found(False, f"it has {len(exported)} entries, the run {len(entries)}")
    has_ended = bool(entries) and entries[-1].event == "Terminated"
    if len(exported) < len(entries) and has_ended:
        return found(False, f"it ends after {len(exported)} of {len(entries)} entries: the tail is missing")
    return found(True, f"{len(exported)} of {len(entries)} entries, unchanged")


def _differing(entry: JournalEntry, recorded: JournalEntry) -> str:
    fields = [name for name in JournalEntry.model_fields if name != "hash"]
    return ", ".join(name for name in fields if getattr(entry, name) != getattr(recorded, name)) or "hash"
