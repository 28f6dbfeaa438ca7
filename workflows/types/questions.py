"""What people are asked: questions of a run, and the calls that policy lets through only after a yes."""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.record import Border, Record, replace_fields

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

    def with_texts(self, by: str, reason: str, result: str) -> Self:
        """Return the resolution with other words."""
        return replace_fields(self, {"by": by, "reason": reason, "result": result})

    def with_result(self, result: str) -> Self:
        """Return the decision with another result."""
        return replace_fields(self, {"result": result})


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

    def with_resolution(self, resolution: Resolution) -> Self:
        """Return the question, decided."""
        return replace_fields(self, {"resolution": resolution})

    def with_content(self, question: str, data: dict[str, Any], resolution: Resolution | None) -> Self:
        """Return the same wait with more or less of what it is about."""
        return replace_fields(self, {"question": question, "data": data, "resolution": resolution})

    def with_calls(self, calls: list[dict[str, Any]]) -> Self:
        """Return the question about these held calls."""
        return replace_fields(self, {"data": {**self.data, "calls": calls}})


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

    def with_texts(self, approver: str, reason: str) -> Self:
        """Return the answer with other words of its giver."""
        return replace_fields(self, {"approver": approver, "reason": reason})


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
    place: str = ""
    """Of the call, or the iteration of the answer: what the journal tells that it is about."""

    def with_answer(self, answer: Answer | None) -> Self:
        """Return the call, decided, or not yet."""
        return replace_fields(self, {"answer": answer})

    def with_content(self, call: ToolCall, version: str, reason: str, approvers: tuple[str, ...]) -> Self:
        """Return the same question with more or less of what it is about."""
        return replace_fields(self, {"call": call, "version": version, "reason": reason, "approvers": approvers})

    def with_critic(self, critic: str) -> Self:
        """Return the call as one that a review asks about."""
        return replace_fields(self, {"critic": critic})
