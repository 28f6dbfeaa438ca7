"""A history event as the folds read it: what happened, decoded, without Temporal's wrapping."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

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
]
"""`scheduled`, `finished`, `failed` and `cancelled` are of activities, local ones included."""


@dataclass(frozen=True)
class Happening:
    """One event of a history."""

    kind: HappeningKind
    at: datetime
    event_id: int
    name: str = ""
    """Activity type or signal name."""
    key: str = ""
    """Activity id, or the next run's id."""
    value: Any = None
    """Input (`started`, `signaled`: the list of arguments; `scheduled`: the first) or result, as plain JSON."""
    text: str = ""
    """What a failure says."""
