"""What a run waits for a person for."""

from datetime import datetime
from typing import Any, Literal

from workflows.types.record import Record

WaitKind = Literal["approval", "answer", "escalation", "budget"]
"""What `OrgaWaiting` says."""

Choice = Literal["retry", "skip", "result", "abort"]
"""A person's decision on an escalation: try again, go on without, take this result, end the run."""


class Resolution(Record):
    """A person's decision, argument of the update `resolve_escalation`."""

    escalation_id: str
    choice: Choice
    result: str = ""
    """The result to go on with, for `result`."""
    by: str = ""
    """Who decided."""
    reason: str = ""


class Wait(Record):
    """One question to a person. While one is open, the run's clock stands still."""

    wait_id: str
    """Unique in the run."""
    kind: WaitKind
    since: datetime
    question: str
    """One line for people."""
    queue: str = "default"
    data: dict[str, Any] = {}
    """What the person needs to decide, bounded in size."""
    resolution: Resolution | None = None
