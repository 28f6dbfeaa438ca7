"""Approvals: calls that policy lets through only after a person has said yes."""

from datetime import datetime

from pydantic import Field

from workflows.types.messages import ToolCall
from workflows.types.record import Border, Record


class ApprovalDecision(Border):
    """Argument of the updates `approve` and `deny`."""

    approval_id: str = Field(min_length=1, max_length=200)
    approver: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=2_000)


class Answer(Record):
    """What a person said about one held call."""

    approved: bool
    approver: str
    reason: str = ""


class Hold(Record):
    """One call that waits for a yes. Its id is bound to the call, its arguments, the policy's version and its place."""

    approval_id: str
    about: str = ""
    """Digest of what it is about, the same each time that this very call is held at its place."""
    call: ToolCall
    version: str = ""
    reason: str = ""
    """Why policy wants a person to see it."""
    approvers: tuple[str, ...] = ()
    """Who may decide; empty: anyone who may send updates to the run."""
    expires_at: datetime
    answer: Answer | None = None
    critic: str = ""
    """Of the review that asks; empty: policy does."""
