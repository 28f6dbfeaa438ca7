"""How deep in a journal an entry stands: those of delegated runs stand below the run that delegated."""

from orga.workflows.types.status import JournalEntry

INDENT = "    "


class Nesting:
    """Takes in entries in order."""

    def __init__(self) -> None:
        self._depths: dict[str, int] = {}

    def depth(self, entry: JournalEntry) -> int:
        """Return how many delegations lead to the run whose entry this is."""
        depth = self._depths.get(run_of(entry), 0)
        if entry.event == "DelegationStarted":
            self._depths[str(entry.data.get("workflow_id"))] = depth + 1
        return depth


def run_of(entry: JournalEntry) -> str:
    """Return the delegated run that an entry is of; empty for the journal's own run."""
    return str(entry.data.get("run", ""))
