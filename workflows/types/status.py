"""The public views of a run: its result, the answers to its queries, the events of its history, and its journal."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError

from orga.workflows.types.control import StopReason
from orga.workflows.types.limits import Budgets
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.models.tiers import Tier
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.questions import Item, ShownQuestion
from orga.workflows.types.recall import Recollection
from orga.workflows.types.record import CheckedInput, InvalidInput, Record, replace_fields, validation_problems
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.breakers import Breaker
from orga.workflows.types.tool_calls.delegation import Child
from orga.workflows.types.tool_calls.recovery import DeadLetter
from orga.workflows.types.workplace import Workplace


class Termination(Record):
    """The reason why the run ended. `detail` is one line for people."""

    reason: StopReason
    detail: str = ""


T = TypeVar("T")


def data_of_type(kind: type[T], data: Any, output: str) -> T:
    """Return a result's data as a type. Raise InvalidInput if the data do not fit the type."""
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        why = "; ".join(validation_problems(error))
        raise InvalidInput(f"the result is no {kind.__name__}: {why}; it is {one_line(output, 200)!r}") from None


class AgentResult(Record):
    """Result of a run. Every ending has a result, with everything that the run gathered."""

    output: str
    data: Any
    iterations: int
    termination: Termination
    duration_s: float
    """Seconds of workflow time. Pauses do not count."""
    usage: UsageTotals
    tool_calls: ToolCallCounts
    conversation_digest: str
    """`sha256:` and 64 hex characters. Empty for a run that never had a message."""

    def data_as(self, kind: type[T]) -> T:
        """Return the data as a type, such as the pydantic model that was given as `output_schema`.

        Raises:
            InvalidInput: The data do not fit the type, for example because the run ended without an answer.
        """
        return data_of_type(kind, self.data, self.output)


class AgentStatus(Record):
    """The current status of a run."""

    agent: str
    model: str | None
    phase: str
    paused: bool
    iteration: int
    usage: UsageTotals
    tool_calls: ToolCallCounts
    budgets: Budgets
    pending_approvals: list[Item]
    """Calls that wait for a person's approval."""
    plan: Any
    question: str | None
    waiting: list[ShownQuestion] = []
    """Open questions to people."""
    breakers: dict[str, Breaker]
    """Circuits by tool. Only those with failures are listed."""
    dead_letters: list[DeadLetter] = []
    children: list[Child] = []
    """Delegated runs that are running or wait for their turn."""
    unread_interventions: list[dict[str, str]]
    termination: Termination | None
    workplace: Workplace | None = None
    """Workplace of the worker that prepared the run."""
    tiers: dict[str, Tier] = {}
    """Tiers by key: `run`, a goal's prompt, or `critic:NAME`. Empty if no model was named by a tier."""
    knowledge: Recollection | None = None
    """The latest recall. None for a run without knowledge."""


class ShownMessage(Record):
    """One message of the conversation, with its role and call ids."""

    role: str
    text: str
    calls: tuple[ToolCall, ...]
    call_id: str | None
    tool: str | None
    is_error: bool

    @classmethod
    def of(cls, message: Message) -> "ShownMessage":
        shown = message.for_people()
        fields = {name: getattr(shown, name) for name in cls.model_fields}
        return cls.model_validate({**fields, "calls": [call.model_dump() for call in shown.calls]})

    def with_text(self, text: str) -> Self:
        return replace_fields(self, {"text": text})


class Page(CheckedInput):
    """Argument of the query `conversation`: the messages to return."""

    offset: int = Field(default=0, ge=0)
    limit: int | None = Field(default=None, ge=1)
    """The most messages to return. An answer's size is limited, so it may have fewer. An empty page is the end."""


FIRST_PAGE = Page()

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
"""`noted`: the run wrote notes. `updated`: an update was accepted. `child_*`: events of delegated runs. `scheduled`,
`finished`, `failed` and `cancelled`: events of activities, including local ones. `decided`: a worker of another build
has completed a workflow task.
"""


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
    """As plain JSON: the list of arguments (`started`, `signaled`), the first argument (`scheduled`), or the result."""
    text: str = ""
    """The text of a failure, or the reason why a signal was refused."""
    run_id: str = ""
    """The last run of a delegated run that ended."""
    attempts: int = 1
    """The attempts of an activity."""
    failed_before: str = ""
    """The failure of the attempt before the last one. Empty if there was none, or if its worker died."""
    effect_text: str = ""
    """A sentence about the effect of a call that failed or was cancelled. It applies if the tool is irreversible."""


CURSOR_CHARS = 16
"""Characters of an entry's hash in its cursor."""


class JournalEntry(Record):
    """An event of a run. `docs/reference/journal-events.md` lists them."""

    sequence: int
    """Its number in the journal, from 0."""
    timestamp: datetime
    agent: str
    iteration: int
    event: str
    """The event's type: `Started`, `ReasoningComplete`, ..., `Terminated`."""
    data: dict[str, Any] = {}
    """The event's data, by key."""
    hash: str = ""
    """Sha256, chained over every field of this entry and all before it, so that an exported journal shows tampering."""
    _took_s: dict[str, float] = PrivateAttr(default_factory=dict)
    _effect_texts: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def run(self) -> str:
        """The id of the delegated run that wrote the entry, or "" if the journal's own run did."""
        return str(self.data.get("run", ""))

    @property
    def took_s(self) -> dict[str, float]:
        """Seconds of each call by its id, for `ObservationsCollected`. They are for display and not part of the hash
        chain.
        """
        return self._took_s

    @property
    def effect_texts(self) -> dict[str, str]:
        """The effect of each irreversible call that may have acted without success, by id, of `ObservationsCollected`.

        The sentences are for display, as `took_s` is.
        """
        return self._effect_texts

    @property
    def cursor(self) -> str:
        """The position for `events(after=...)`. Unlike the sequence it shows whether the run was rewound since."""
        return f"{self.sequence}-{self.hash[:CURSOR_CHARS]}"

    def with_display(self, took_s: dict[str, float], effect_texts: dict[str, str]) -> Self:
        """Return the entry with what only displays show. It is no part of the journal, nor of the hash."""
        shown = replace_fields(self, {})
        shown._took_s, shown._effect_texts = took_s, effect_texts
        return shown

    def with_sequence(self, sequence: int, data: dict[str, Any]) -> Self:
        return replace_fields(self, {"sequence": sequence, "data": data})

    def with_hash(self, digest: str) -> Self:
        return replace_fields(self, {"hash": digest})
