"""What people are asked, told and answer: one kind of question for all that a workflow may want of them."""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from orga.workflows.types.record import CheckedInput, Record, replace_fields

QuestionKind = Literal["approval", "answer", "escalation", "budget"]
"""What `OrgaWaiting` says."""

QUESTION_ASKED, QUESTION_ANSWERED = "QuestionAsked", "QuestionAnswered"
"""The notes that tell of questions with a free answer."""

Choice = Literal["retry", "skip", "result", "abort"]
"""A person's decision on a question: try again, go on without, take this result, end the run."""


ANSWER = "(answer)"
"""Stands for the final answer where a call would stand; no tool can have such a name."""


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


class ApprovalDecision(CheckedInput):
    """Argument of the updates `approve` and `deny`."""

    approval_id: str = Field(min_length=1, max_length=200)
    approver: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=2_000)


class Answer(Record):
    """What a person said about one item."""

    approved: bool
    approver: str
    reason: str = ""

    def with_texts(self, approver: str, reason: str) -> Self:
        """Return the answer with other words of its giver."""
        return replace_fields(self, {"approver": approver, "reason": reason})


EXPIRED_ANSWER = Answer(approved=False, approver="", reason="nobody approved it in time")


class Item(Record):
    """One thing that a question wants a yes for, and that is decided by itself."""

    approval_id: str
    """Bound to what it is about, to what asks, and to this asking: a yes fits nothing else."""
    about: str = ""
    """Digest of what it is about, the same each time that this very thing is asked at its place."""
    call: dict[str, Any] = {}
    """What would be carried out: `call_id`, `name`, `arguments`."""
    version: str = ""
    """Of the rules that ask."""
    reason: str = ""
    """Why a person is to see it."""
    approvers: tuple[str, ...] = ()
    """Who may decide; empty: anyone who may send updates to the run."""
    expires_at: datetime
    answer: Answer | None = None
    critic: str = ""
    """Of the review that asks; empty: policy does."""
    place: str = ""
    """Of the call, or the iteration of the answer: what the journal tells that it is about."""

    def with_answer(self, answer: Answer | None) -> Self:
        """Return the item, decided, or not yet."""
        return replace_fields(self, {"answer": answer})

    def with_content(self, call: dict[str, Any], version: str, reason: str, approvers: tuple[str, ...]) -> Self:
        """Return the same item with more or less of what it is about."""
        return replace_fields(self, {"call": call, "version": version, "reason": reason, "approvers": approvers})

    @property
    def asker(self) -> dict[str, str]:
        """What people are shown of who asks, where policy does not."""
        return {"critic": self.critic} if self.critic else {}

    def with_critic(self, critic: str) -> Self:
        """Return the item as one that a review asks about."""
        return replace_fields(self, {"critic": critic})


class Question(Record):
    """One question to people, decided once: as a whole by one of its choices, or item by item.

    While one is open the run's clock stands still.
    """

    question_id: str
    """Unique in the run."""
    kind: QuestionKind
    since: datetime
    text: str
    """One line for people."""
    queue: str = "default"
    data: dict[str, Any] = {}
    """What the person needs to decide, bounded in size."""
    items: tuple[Item, ...] = ()
    choices: tuple[Choice, ...] = ()
    resolution: Resolution | None = None
    place: str = ""
    """Of the call that asks."""
    options: tuple[str, ...] = ()
    """The only answers that count; none for any text."""
    default: str = ""
    """The answer where nobody gives one until it expires."""
    expires_at: datetime | None = None
    """As a whole; None for as long as it takes."""
    approvers: tuple[str, ...] = ()
    """Who may decide it as a whole; empty: anyone who may send updates to the run."""

    @property
    def is_open(self) -> bool:
        """Whether somebody has to decide something yet."""
        return self.resolution is None and (not self.items or any(item.answer is None for item in self.items))

    def with_since(self, since: datetime) -> Self:
        """Return the question as one that was asked then."""
        return replace_fields(self, {"since": since})

    def with_resolution(self, resolution: Resolution) -> Self:
        """Return the question, decided."""
        return replace_fields(self, {"resolution": resolution})

    def with_items(self, items: tuple[Item, ...]) -> Self:
        """Return the question about these."""
        return replace_fields(self, {"items": items})

    def with_content(
        self, text: str, data: dict[str, Any], items: tuple[Item, ...], resolution: Resolution | None
    ) -> Self:
        """Return the same question with more or less of what it is about."""
        return replace_fields(self, {"text": text, "data": data, "items": items, "resolution": resolution})


class ShownQuestion(Record):
    """A question that waits for somebody, as `status` tells it and people outside are told of it."""

    wait_id: str
    """What decides it names it."""
    kind: QuestionKind
    since: datetime
    question: str
    """One line for people."""
    queue: str = "default"
    data: dict[str, Any] = {}
    """What the person needs to decide; of an approval the calls that nobody has decided yet, of a free answer its
    `options`, its `default`, when it `expires_at` and its `approvers`."""
    choices: tuple[Choice, ...] = ()
    """As a whole; none where each call is decided by itself."""
    resolution: Resolution | None = None

    def with_calls(self, calls: list[dict[str, Any]]) -> Self:
        """Return the question about these calls."""
        return replace_fields(self, {"data": {**self.data, "calls": calls}})


NotifyEvent = Literal["approval", "answer", "escalation", "budget", "ended"]
"""The kinds of question that a run asks, and its end."""


class NotifiedCall(Record):
    """A call that a question is about."""

    tool: str
    arguments: str = ""
    """JSON, whole; left out where it does not fit."""
    arguments_bytes: int = 0
    """Where it was left out."""
    arguments_digest: str = ""
    id: str = ""
    """What approves or denies it."""
    reason: str = ""
    approvers: tuple[str, ...] = ()


class Notification(Record):
    """Input of `deliver_notification`, bounded in size. Where it goes and what signs it is known to the worker only."""

    message_id: str
    """Every attempt to deliver it has the same."""
    event: Literal["waiting", "ended", "test"]
    agent: str
    kind: str = ""
    """Of the question."""
    wait_id: str = ""
    question: str = ""
    queue: str = ""
    """Of an escalation, where a tool's recovery names one."""
    limit: str = ""
    """Of a budget: the one that is used up."""
    calls: tuple[NotifiedCall, ...] = ()
    calls_left_out: int = 0
    error: str = ""
    expires_at: str = ""
    """When the first of the calls is denied for want of an answer."""
    commands: tuple[str, ...] = ()
    """What decides it, the likeliest first."""
    reason: str = ""
    """Why the run ended."""
    detail: str = ""
