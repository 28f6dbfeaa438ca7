"""The journal: events as its folds read them, and its lines."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self

from orga.workflows.types.record import Record, replace_fields

HappeningKind = Literal[
    "started",
    "signaled",
    "scheduled",
    "finished",
    "failed",
    "cancelled",
    "workflow_completed",
    "workflow_failed",
    "workflow_cancelled",
    "workflow_terminated",
    "workflow_timed_out",
    "continued_as_new",
    "noted",
    "updated",
    "child_started",
    "child_finished",
    "child_failed",
    "decided",
]
"""`noted`: the run wrote notes; `updated`: an update was accepted; `child_*` are of delegated runs. `scheduled`,
`finished`, `failed` and `cancelled` are of activities, local ones included. `decided`: from here on a worker of another
build than before completes the workflow tasks."""


@dataclass(frozen=True)
class Happening:
    """One event of a history."""

    kind: HappeningKind
    at: datetime
    event_id: int
    name: str = ""
    """Activity type, signal or update name."""
    key: str = ""
    """Activity id, the next run's id, the workflow id of a delegated run, or a build."""
    value: Any = None
    """Input (`started`, `signaled`: the list of arguments; `scheduled`: the first) or result, as plain JSON."""
    text: str = ""
    """What a failure says; why a signal was refused."""
    run_id: str = ""
    """The last run of a delegated run that ended."""


class JournalEntry(Record):
    """An event of a run. `hash` is chained over every field, so that an exported journal shows tampering."""

    sequence: int
    timestamp: datetime
    agent: str
    iteration: int
    event: str
    data: dict[str, Any] = {}
    hash: str = ""

    def with_place(self, sequence: int, data: dict[str, Any]) -> Self:
        """Return the entry as one of another journal."""
        return replace_fields(self, {"sequence": sequence, "data": data})

    def with_hash(self, digest: str) -> Self:
        """Return the entry, chained."""
        return replace_fields(self, {"hash": digest})
