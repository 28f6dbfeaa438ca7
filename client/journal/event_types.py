"""The events of a journal as types: their meaning and their data. Everything that reads a journal uses them.

The types are tolerant, because a journal may be from another version. A missing key or a value of the wrong type gives
the field's default, and unknown keys are kept as extra fields. The reference page shows the docstrings and the keys.
"""

from contextlib import suppress
from typing import Any, ClassVar, cast

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from orga.workflows.types.models.usage import Usage, UsageTotals
from orga.workflows.types.record import Record
from orga.workflows.types.status import JournalEntry

Object = dict[str, Any]
Number = int | float


PAST_MISSING = "PastMissing"
"""The first entry of a journal if the server no longer has the oldest segments. It has number 0."""

ANSWER_PROMPT = "goal_summary"
"""The `turn` for a goal's summary. Of the replies to a goal's prompts, only this one is for people."""


class TolerantRecord(Record):
    """Keeps unknown keys, and takes the default of a field whose value has the wrong type."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True, defer_build=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _default_if_invalid(cls, value: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return read(value)
        except ValidationError:
            if isinstance(value, list):
                objects: list[Any] = [item for item in cast("list[Any]", value) if isinstance(item, dict)]
                with suppress(ValidationError):  # without the items that are not objects, the others can be read
                    return read(objects)
            return cls.model_fields[info.field_name or ""].get_default(call_default_factory=True)

    def as_recorded(self) -> Object:
        """Return the data as the journal has it, without defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class RecordedAction(TolerantRecord):
    """A call that the model proposed, or its answer."""

    tool: str | None = None
    """None for an answer."""
    call_id: str = ""
    arguments: Object = {}
    respond: str = ""


class RecordedVerdict(TolerantRecord):
    """The gate's verdict on one proposal."""

    decision: str = ""
    reason: str = ""
    tools: Any = None
    arguments: Any = None
    approval: Any = None
    policies: tuple[str, ...] = ()
    version: str = ""


class RecordedCall(TolerantRecord):
    """A call of the run, with its outcome if it is known."""

    tool: str = ""
    call_id: str = ""
    place: str = ""
    outcome: str = ""
    error: str = ""
    value: Any = None
    """The value of a tool with an output schema, if it is short."""


class RecordedStep(TolerantRecord):
    """An open step of a plan."""

    id: str = ""
    skill: str = ""
    goal: str = ""
    depends_on: tuple[str, ...] = ()


class RecordedItem(TolerantRecord):
    """A recalled item of knowledge."""

    id: str = ""
    score: float = 0.0
    tainted: bool = False


class RecordedReference(TolerantRecord):
    """A reference in the task."""

    value: str = ""
    status: str = ""
    why: str = ""


class JournalEvent(TolerantRecord):
    """The data of an entry. An event that this version does not know is read as this class itself."""

    run: str = ""
    """The id of the delegated run that wrote the entry, or "" if the journal's own run did."""

    event_name: ClassVar[str] = ""
    """The event's name, if the class has another one."""

    @classmethod
    def meaning(cls) -> str:
        """Return what the event means, on one line."""
        return " ".join((cls.__doc__ or "").split())

    @classmethod
    def data_keys(cls) -> list[str]:
        """Return the keys of its data. Rare keys are present only if they have a value."""
        return [field.alias or name for name, field in cls.model_fields.items() if name != "run"]


class Started(JournalEvent):
    """The run begins, or a fork continues from another run's past."""

    task: str = ""
    input: Object = {}
    forked_from: Object = {}
    guidance: str = ""


class Prepared(JournalEvent):
    """A worker has resolved agent, model, tools and policy, and the run keeps this setup."""

    model: str = ""
    instructions: str = ""
    tools: Object = {}
    config: Object = {}
    policy: str = ""
    policy_version: str = ""
    build: str = ""
    loop_version: int = 0
    settings_version: int = 0
    prompts: Object = {}
    tiers: Object = {}


class PreHydrationComplete(JournalEvent):
    """References in the task were looked up before the first reasoning step."""

    references_found: int = 0
    references_resolved: int = 0
    references_failed: int = 0
    """All that were not resolved: `failed` and `unresolvable`."""
    resolved: int = 0
    failed: int = 0
    unresolvable: int = 0
    total_tokens: int = 0
    references: tuple[RecordedReference, ...] = ()


class KnowledgeRecalled(JournalEvent):
    """Knowledge of earlier runs was recalled, before a step or by a tool."""

    terms: tuple[str, ...] = ()
    items: tuple[RecordedItem, ...] = ()
    block: str = ""
    taint: tuple[str, ...] = ()
    place: str = ""
    error: str = ""


class KnowledgeStored(JournalEvent):
    """An item of knowledge was stored, or could not be."""

    place: str = ""
    id: str = ""
    kind: str = ""
    change: str = ""
    contradicts: tuple[str, ...] = ()
    error: str = ""


class ContextCompacted(JournalEvent):
    """The model is no longer sent some messages or results: they are too old, or a content filter refused them."""

    strategy: str = ""
    messages_dropped: int = 0
    messages_masked: int = 0
    messages_replaced: int = 0
    error: str = ""
    summary: str = ""
    usage: Usage = Usage()
    fields_cut: tuple[str, ...] = ()
    unused: bool = False
    """True if the run ended before its summary was used. The entry then only has the usage."""


class ModelFailedOver(JournalEvent):
    """A model failed, and the next of its tier took over."""

    from_: str = Field(default="", alias="from")
    to: str = ""
    why: str = ""


class ReasoningComplete(JournalEvent):
    """The model's reply: calls, or an answer. In a goal, `turn` is the goal prompt: `goal_plan`, `goal_decide`, …"""

    actions: tuple[RecordedAction, ...] = ()
    finish: str = ""
    usage: Usage = Usage()
    cost_usd: Number | None = None
    model: str = ""
    turn: str = ""
    prompt: str = ""
    left_out: Any = None
    repaired: Any = None

    @property
    def calls(self) -> tuple[RecordedAction, ...]:
        """The proposed calls. Empty for an answer."""
        return tuple(action for action in self.actions if action.tool is not None)

    @property
    def is_for_people(self) -> bool:
        """True if an answer is for people. Later entries show the effect of a goal's other answers."""
        return self.turn in {"", ANSWER_PROMPT}


class PolicyEvaluated(JournalEvent):
    """The gate's verdict on each proposal. If the gate could not decide, `error` is set, and all are denied."""

    action_count: int = 0
    denied_count: int = 0
    places: tuple[str, ...] = ()
    verdicts: tuple[RecordedVerdict, ...] = ()
    calls: tuple[str, ...] | None = None
    """Ids of the reply's calls that were judged again. None in a reply's first judgement, or if the gate failed."""
    about: str = ""
    """`ending`, `plan` or `learnings`, if the proposal is not part of a reply."""
    error: str = ""


class ToolsDispatched(JournalEvent):
    """The run executes the allowed calls, `duration_s` after the reply that proposed them."""

    tool_count: int = 0
    tools: tuple[RecordedCall, ...] = ()
    duration_s: float | None = None


class ObservationsCollected(JournalEvent):
    """The outcome of every call: `ok`, `failed`, `cancelled`, `unfinished` or `not_run`."""

    observation_count: int = 0
    outcomes: tuple[RecordedCall, ...] = ()


class ApprovalRequested(JournalEvent):
    """The run waits for a person who approves, decides on a failure or extends the budget, or for a deferred result."""

    kind: str = ""
    id: str = ""
    place: str = ""
    tool: str = ""
    call_id: str = ""
    arguments: Any = None
    reason: str = ""
    approvers: tuple[str, ...] = ()
    expires_at: str = ""
    question: str = ""
    queue: str = ""


class ApprovalResolved(JournalEvent):
    """A question of `ApprovalRequested` is over: a person has decided, the result has arrived, or it has expired."""

    kind: str = ""
    id: str = ""
    place: str = ""
    tool: str = ""
    approved: bool = False
    approver: str = ""
    choice: str = ""
    by: str = ""
    reason: str = ""
    answer: str = ""
    arguments: str = ""
    """The arguments (JSON) with which the person replaced the call's own, or their beginning. Empty if unchanged."""
    arguments_bytes: int = 0
    """Bytes of the whole JSON, if `arguments` is only its beginning."""


class QuestionAsked(JournalEvent):
    """The model or a goal asks people a question."""

    id: str = ""
    question: str = ""
    place: str = ""
    choices: Any = None


class QuestionAnswered(JournalEvent):
    """The question was answered."""

    id: str = ""
    question: str = ""
    choice: str = ""
    answer: str = ""
    by: str = ""
    reason: str = ""
    place: str = ""


class RecoveryTriggered(JournalEvent):
    """A failed call was retried, replaced, skipped, given up or decided on."""

    tool: str = ""
    call_id: str = ""
    strategy: str = ""
    error: str = ""
    outcome: str = ""
    attempts: int = 0
    calls: tuple[RecordedCall, ...] = ()
    letter_id: str = ""
    text: str = ""


class StepLimitReached(JournalEvent):
    """A call that kept failing with the same tool and arguments was stopped."""

    step_id: str = ""
    tool: str = ""
    attempts: int = 0
    reason: str = ""


class CircuitOpened(JournalEvent):
    """A tool kept failing and is not called for a while."""

    tool: str = ""
    scope: str = ""
    failures: int | None = None
    recovery_s: float = 0.0
    cause: str = ""


class CircuitClosed(JournalEvent):
    """The tool works again."""

    tool: str = ""
    scope: str = ""


class SagaEnded(JournalEvent):
    """A saga was completed, or compensated."""

    place: str = ""
    call_id: str = ""
    outcome: str = ""
    error: str = ""
    calls: tuple[RecordedCall, ...] = ()


class DecisionGrounded(JournalEvent):
    """A declared rule has decided over typed fields and recorded facts."""

    place: str = ""
    decision: str = ""
    outcome: Object = {}
    rule: str = ""
    fields: Object = {}
    facts: Object = {}
    declaration: str = ""
    rationale: str = ""


class CritiqueEvaluated(JournalEvent):
    """A critic has reviewed an answer or a call. `then` is the consequence."""

    kind: str = ""
    critic: str = ""
    place: str = ""
    target: str = ""
    call_id: str = ""
    score: float | None = None
    approved: bool = False
    says_approved: bool | None = None
    """The critic model's own opinion, which decides nothing."""
    dimensions: Object = {}
    reviewer: str = ""
    round: int = 0
    then: str = ""
    usage: Usage = Usage()
    feedback: str = ""
    error: str = ""


class DelegationStarted(JournalEvent):
    """Another agent works on a part. Its journal follows, up to `DelegationEnded`."""

    tool: str = ""
    call_id: str = ""
    agent: str = ""
    task: str = ""
    workflow_id: str = ""


class DelegationEnded(JournalEvent):
    """The delegation has ended."""

    tool: str = ""
    call_id: str = ""
    workflow_id: str = ""
    reason: str = ""
    detail: str = ""
    usage: UsageTotals = UsageTotals()


class InterventionReceived(JournalEvent):
    """Somebody has steered, paused, resumed, aborted or rewound the run, or raised its budget."""

    kind: str = ""
    text: Any = ""
    id: str = ""
    by: str = ""
    known: bool = True
    refused: str | None = None
    to_iteration: int | None = None
    steer: str = ""
    left: Any = None
    """Calls that a rewound run had carried out."""
    of: str = ""
    """The kind of the intervention whose text was cut, or `guidance`. Only if the entry's own kind is `cut`."""
    bytes: int = 0
    """Bytes of the text before the cut."""
    kept: int = 0
    """Bytes of the text after the cut."""


class InterventionRefused(JournalEvent):
    """The run could not use an intervention."""

    kind: str = ""
    id: str = ""
    by: str = ""
    reason: str = ""


class InterventionApplied(JournalEvent):
    """An intervention that has an id takes effect: the model gets it, or the run pauses, resumes or ends."""

    kind: str = ""
    id: str = ""
    by: str = ""
    phase: str = ""
    iteration: int = 0


class NotificationFailed(JournalEvent):
    """A notification could not be sent to people."""

    about: str = ""
    error: str = ""


class PlanMade(JournalEvent):
    """A goal has a plan."""

    steps: tuple[RecordedStep, ...] = ()
    pipeline: str | None = None
    kind: str = ""


class PlanAdjusted(JournalEvent):
    """The plan was changed."""

    by: str = ""
    steps: tuple[RecordedStep, ...] = ()


class StepExecuted(JournalEvent):
    """A step of the plan was executed."""

    step: str = ""
    skill: str = ""
    place: str = ""
    status: str = ""
    error: str = ""


class StepEvaluated(JournalEvent):
    """The outcome of a step was scored."""

    step: str = ""
    score: Number | None = None
    quality: str = ""
    label: str = ""
    by: str = ""


class StepOverridden(JournalEvent):
    """A person has replaced a step of the plan, or has added one."""

    step: str = ""
    skill: str = ""


class MemoryCompressed(JournalEvent):
    """The memory of a goal was compressed."""

    before: int = 0
    after: int = 0
    taken: bool = False
    """True if the shorter memory replaced the old one. A memory that lost names does not."""
    lost: tuple[str, ...] = ()


class DecisionMade(JournalEvent):
    """A goal has decided what it does next."""

    by: str = ""
    action: str = ""
    confidence: Number | None = None
    reason: str = ""


class AnswerDelivered(JournalEvent):
    """The answer of a goal was delivered to a channel."""

    event_name = "Delivered"

    name: str = ""
    kind: str = ""
    attempts: int = 0


class DeliveryFailed(JournalEvent):
    """The answer of a goal could not be delivered; `orga requeue` sends it again."""

    name: str = ""
    kind: str = ""
    error: str = ""
    attempts: int = 0


class TurnStarted(JournalEvent):
    """A turn of a session begins, with its own budgets. `turn` is its number."""

    turn: int = 0
    message: str = ""
    attachments: tuple[str, ...] = ()
    """A line for each picture or document: `[image photo.png, 640x480, 120 kB]`."""

    @property
    def message_lines(self) -> str:
        """The message, and a line for each attachment."""
        return "\n".join((self.message, *self.attachments))


class TurnEnded(JournalEvent):
    """A turn has ended, and the session continues."""

    turn: int = 0
    reason: str = ""
    detail: str = ""
    iterations: int = 0
    usage: UsageTotals = UsageTotals()


class BuildChanged(JournalEvent):
    """Workflow code of another build decides from now on."""

    before: str = ""
    build: str = ""


class PastMissing(JournalEvent):
    """The server no longer has the earlier entries."""

    detail: str = ""


class Terminated(JournalEvent):
    """The run has ended."""

    reason: str = ""
    detail: str = ""
    iterations: int = 0
    usage: UsageTotals = UsageTotals()
    tool_calls: Object = {}
    duration_s: float | None = None
    conversation_digest: str = ""

    @property
    def reason_and_detail(self) -> dict[str, str]:
        return {"reason": self.reason, "detail": self.detail}


EVENTS = {kind.event_name or kind.__name__: kind for kind in JournalEvent.__subclasses__()}
"""By name, in the order of a run."""


def read_event(entry: JournalEntry) -> JournalEvent:
    """Return the event of an entry. It raises no error for data of another version."""
    return EVENTS.get(entry.event, JournalEvent).model_validate(entry.data)
