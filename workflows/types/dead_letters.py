"""Calls that were given up, kept for a person to send again."""

from datetime import datetime

from workflows.types.messages import ToolCall
from workflows.types.record import Record


class DeadLetter(Record):
    """A call whose every attempt failed."""

    letter_id: str
    """`<iteration>.<index>` of the call."""
    call: ToolCall
    key: str
    """Its idempotency key, which a requeued call keeps unless policy changes its arguments."""
    error: str
    at: datetime
    requeued: bool = False
