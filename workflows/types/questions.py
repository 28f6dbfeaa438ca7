"""Questions to people, and their decisions. Everything that a workflow asks is a `Question`."""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from orga.workflows.types.record import CheckedInput, Record, replace_fields

QuestionKind = Literal["approval", "answer", "escalation", "budget", "result"]
"""Values of `OrgaWaiting`. A `result` of a deferred tool comes from outside. People decide all other kinds."""

QUESTION_ASKED, QUESTION_ANSWERED = "QuestionAsked", "QuestionAnswered"
"""Notes about a question with a free answer."""

Choice = Literal["retry", "skip", "result", "abort"]
"""A person's decision: try again, continue without, use this result, or end the run."""

ANSWER = "(answer)"
"""The name in place of a tool if a final answer is judged like a call. No tool can have such a name."""


class Resolution(Record):
    """A person's decision. Argument of the update `resolve_escalation`."""

    escalation_id: str
    choice: Choice
    result: str = ""
    """The result to continue with, for the choice `result`."""
    by: str = ""
    reason: str = ""

    def with_texts(self, by: str, reason: str, result: str) -> Self:
        return replace_fields(self, {"by": by, "reason": reason, "result": result})

    def with_result(self, result: str) -> Self:
        return replace_fields(self, {"result": result})


class ApprovalDecision(CheckedInput):
    """Argument of the updates `approve` and `deny`."""

    approval_id: str = Field(min_length=1, max_length=200)
    approver: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=2_000)
    arguments: dict[str, Any] | None = None
    """All arguments of the call in place of the model's, for `approve`. The gate judges them like the model's."""


class ToolCompletion(CheckedInput):
    """Argument of the update `complete_tool_call`: a result or an error."""

    idempotency_key: str = Field(min_length=1, max_length=64)
    """The key of the call, which the start of the work received."""
    by: str = Field(min_length=1, max_length=200)
    """The person or the program that completes the call."""
    result: Any = None
    """Any JSON."""
    result_json: str = ""
    """The result as JSON text, in place of `result`, for results with more than 1,000 parts."""
    error: str = Field(default="", max_length=2_000)
    """A text about the failure, for the model."""
    nothing_done: bool = False
    """True if the call failed and had no effect. Without it, the effect of a failed irreversible call is unknown."""


class Completion(Record):
    """The end of a call of a deferred tool. Without a result and an error, the call has expired."""

    result: str = ""
    """JSON."""
    error: str = ""
    nothing_done: bool = False
    by: str = ""

    @property
    def is_expired(self) -> bool:
        return not self.result and not self.error


class ItemDecision(Record):
    """A person's decision on one item of a question."""

    approved: bool
    approver: str
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """The arguments that the person put in place of the call's. None keeps them."""

    def with_texts(self, approver: str, reason: str) -> Self:
        return replace_fields(self, {"approver": approver, "reason": reason})

    def with_arguments(self, arguments: dict[str, Any]) -> Self:
        return replace_fields(self, {"arguments": arguments})


EXPIRED_DECISION = ItemDecision(approved=False, approver="", reason="nobody approved it in time")


class Item(Record):
    """One part of a question that needs an approval of its own."""

    approval_id: str
    """A digest of the call, its place, who asks (policy or critic) and this request. It approves nothing else."""
    about: str = ""
    """Digest of the subject. Another segment that asks the same question at the same place finds the item by it."""
    call: dict[str, Any] = {}
    """The call to approve: `call_id`, `name`, `arguments`."""
    version: str = ""
    reason: str = ""
    approvers: tuple[str, ...] = ()
    """People who may decide. Empty: anyone who may send updates to the run."""
    expires_at: datetime
    answer: ItemDecision | None = None
    critic: str = ""
    """Name of the critic that asks. Empty: the policy asks."""
    place: str = ""
    """The call's place, or the answer's iteration. The journal names it."""

    def with_decision(self, decision: ItemDecision | None) -> Self:
        return replace_fields(self, {"answer": decision})

    def with_content(self, call: dict[str, Any], version: str, reason: str, approvers: tuple[str, ...]) -> Self:
        return replace_fields(self, {"call": call, "version": version, "reason": reason, "approvers": approvers})

    @property
    def asker_data(self) -> dict[str, str]:
        """The critic's name as data for people. Empty if policy asks."""
        return {"critic": self.critic} if self.critic else {}

    def with_critic(self, critic: str) -> Self:
        return replace_fields(self, {"critic": critic})


class Question(Record):
    """One question to people. It is decided once: as a whole by one of its choices, or item by item.

    While a question is open, the run's clock does not run.
    """

    question_id: str
    """Unique in the run."""
    kind: QuestionKind
    since: datetime
    text: str
    queue: str = "default"
    data: dict[str, Any] = {}
    """The information that a person needs to decide, bounded in size."""
    items: tuple[Item, ...] = ()
    choices: tuple[Choice, ...] = ()
    resolution: Resolution | None = None
    place: str = ""
    options: tuple[str, ...] = ()
    """The only valid answers. Empty: any text."""
    default: str = ""
    """The answer that is used if the question expires."""
    expires_at: datetime | None = None
    """The time at which the question as a whole expires. None: never."""
    approvers: tuple[str, ...] = ()
    """People who may decide it as a whole. Empty: anyone who may send updates to the run."""
    completion: Completion | None = None
    """The end of the call. Set once a question of kind `result` is decided."""

    @property
    def is_open(self) -> bool:
        is_decided = self.resolution is not None or self.completion is not None
        return not is_decided and (not self.items or bool(self.undecided_items))

    @property
    def undecided_items(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.answer is None)

    def with_completion(self, completion: Completion) -> Self:
        return replace_fields(self, {"completion": completion})

    def with_since(self, since: datetime) -> Self:
        return replace_fields(self, {"since": since})

    def with_resolution(self, resolution: Resolution) -> Self:
        return replace_fields(self, {"resolution": resolution})

    def with_items(self, items: tuple[Item, ...]) -> Self:
        return replace_fields(self, {"items": items})

    def with_content(
        self, text: str, data: dict[str, Any], items: tuple[Item, ...], resolution: Resolution | None
    ) -> Self:
        return replace_fields(self, {"text": text, "data": data, "items": items, "resolution": resolution})


class ShownQuestion(Record):
    """An open question, as `status` and notifications show it."""

    wait_id: str
    """The id that a decision names."""
    kind: QuestionKind
    since: datetime
    question: str
    queue: str = "default"
    data: dict[str, Any] = {}
    """The information that a person needs to decide. An approval has the undecided calls. A free answer has `options`,
    `default`, `expires_at` and `approvers`.
    """
    choices: tuple[Choice, ...] = ()
    """Choices for the whole question. Empty if each call is decided by itself."""
    resolution: Resolution | None = None

    def with_calls(self, calls: list[dict[str, Any]]) -> Self:
        return replace_fields(self, {"data": {**self.data, "calls": calls}})


NotifyEvent = Literal[QuestionKind, "ended"]
"""The kinds of question that a run asks, and its end."""


class NotifiedCall(Record):
    tool: str
    arguments: str = ""
    """The whole JSON. Left out if it does not fit."""
    arguments_bytes: int = 0
    arguments_digest: str = ""
    id: str = ""
    """The id that approves or denies it."""
    reason: str = ""
    approvers: tuple[str, ...] = ()


class Notification(Record):
    """Input of `deliver_notification`, bounded in size. Only the worker knows the receiver and the signing key."""

    message_id: str
    """The same for every attempt to deliver it."""
    event: Literal["waiting", "ended", "test"]
    agent: str
    kind: str = ""
    wait_id: str = ""
    question: str = ""
    queue: str = ""
    """Queue of an escalation, if the tool's recovery names one."""
    limit: str = ""
    """The limit that is reached, if the question is about a budget."""
    calls: tuple[NotifiedCall, ...] = ()
    calls_left_out: int = 0
    error: str = ""
    expires_at: str = ""
    """The time at which the first of the calls is denied because nobody answered."""
    commands: tuple[str, ...] = ()
    """Commands that decide the question, the most likely first."""
    reason: str = ""
    detail: str = ""


INPUT_REQUIRED = "InputRequired"
"""Failure type of a call that needs input from a person. The call is repeated with the input."""

MAX_INPUT_ROUNDS = 5
"""Requests for input that one call may make, one after the other."""


class FormField(Record):
    """A field of a form."""

    name: str
    kind: Literal["string", "email", "uri", "date", "date-time", "number", "integer", "boolean", "list"] = "string"
    """The type of its value. `email`, `uri`, `date` and `date-time` are texts, and a list has texts."""
    title: str = ""
    """The server's title and description of the field, on one line."""
    options: tuple[str, ...] = ()
    """The only values of a text, or of each text of a list."""
    is_required: bool = True
    least: float | None = None
    """The smallest number, the fewest characters of a text, or the fewest choices of a list."""
    most: float | None = None


class AskedInput(Record):
    """One request of a server: a form, or an address that a person opens."""

    key: str
    message: str
    """The server's text, on one line."""
    url: str = ""
    fields: tuple[FormField, ...] = ()


class AskedInputs(Record):
    """Requests for input. Their server cannot finish a call without it."""

    server: str
    inputs: tuple[AskedInput, ...] = ()
    state: str | None = None
    """Text that the server gets back unchanged."""
    answers: dict[str, dict[str, Any] | None] = {}
    """Answers to earlier requests of the call. It needs them again."""


class GivenInputs(Record):
    """The answers of people to a server's requests."""

    answers: dict[str, dict[str, Any] | None] = {}
    """Values by field name, for each request by its key. None: a person declined the request."""
    state: str | None = None

    def with_answer(self, key: str, values: dict[str, Any] | None) -> Self:
        return replace_fields(self, {"answers": {**self.answers, key: values}})
