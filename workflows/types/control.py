"""The state of any run that people can steer: clock, inbox, questions, pause and end. Nothing here is about agents."""

from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple, Self, TypedDict, Unpack

from pydantic import AwareDatetime, FailFast, Field

from orga.workflows.types.questions import NotifyEvent, Question, QuestionKind
from orga.workflows.types.record import Record, replace_fields

StopReason = Literal[
    "completed",
    "max_iterations",
    "max_tokens",
    "max_cost",
    "timeout",
    "policy_denial",
    "aborted",
    "escalated",
    "stuck",
    "error",
]


class Stop(NamedTuple):
    """The end of a run. JSON has it as a list of two texts."""

    reason: StopReason
    detail: str = ""
    """One line for people."""


InterventionKind = Literal[
    "steer",
    "add_context",
    "pause",
    "resume",
    "abort",
    "override_step",
    "answer",
    "approve",
    "deny",
    "resolve_escalation",
    "extend_budget",
    "requeue",
    "complete_tool_call",
    "send",
    "interrupt",
]


class Intervention(Record):
    """A signal of a person, with its sender."""

    kind: InterventionKind
    text: str = ""
    id: str = ""
    """The sender's own id for it. With an id, the journal records when it takes effect, or why it has no effect."""
    by: str = ""
    """The name of the sender, as the sender gives it."""
    size: int = 0
    """UTF-8 bytes that were sent, if the text was cut. 0 if the text is complete."""
    is_for_delegates: bool = True
    """True if delegates that are running receive it too. Otherwise only this run's model reads it."""

    @property
    def sender(self) -> dict[str, str]:
        """The id and the sender's name, under the keys of signals and the journal. Empty ones are left out."""
        return {name: value for name, value in (("id", self.id), ("by", self.by)) if value}

    @property
    def key(self) -> str:
        """The id, made different for each sender, because two may choose the same. Empty without an id."""
        return sha256(f"{self.id} {self.by}".encode()).hexdigest() if self.id and self.by else self.id

    def with_cut(self, text: str, size: int) -> Self:
        return replace_fields(self, {"text": text, "size": size})

    def with_shorter_text(self, text: str) -> Self:
        """Return it with a cut text, and with the size of the text that was sent. Nothing changes if nothing is cut."""
        return self if text == self.text else self.with_cut(text, self.size or len(self.text.encode()))

    def without_sender(self) -> Self:
        return replace_fields(self, {"id": "", "by": ""})


class Clock(Record):
    """The run's time in seconds since the start. Pauses and waits for people do not count."""

    started_at: datetime
    stopped_at: datetime | None = None
    """None while the clock runs."""
    stopped_s: float = 0.0
    """Seconds of all earlier stops."""

    def elapsed_seconds(self, now: datetime) -> float:
        end = self.stopped_at or now
        return max((end - self.started_at).total_seconds() - self.stopped_s, 0.0)

    def paused_seconds(self, now: datetime) -> float:
        return self.stopped_s + (0.0 if self.stopped_at is None else (now - self.stopped_at).total_seconds())

    def with_started_at(self, started_at: datetime) -> Self:
        return replace_fields(self, {"started_at": started_at})

    def with_stopped_at(self, now: datetime) -> Self:
        return replace_fields(self, {"stopped_at": now})

    def with_resumed_at(self, now: datetime) -> Self:
        return replace_fields(self, {"stopped_at": None, "stopped_s": self.paused_seconds(now)})

    def without_seconds(self, seconds: float) -> Self:
        return replace_fields(self, {"stopped_s": self.stopped_s + seconds})


NOTES_MEMO = "orga_notes"
"""The memo key for notes. Each upsert holds the notes since the previous upsert."""

MAX_NOTE_CHARS = 300


class Note(Record):
    """A journal entry that has no activity of its own."""

    event: str
    """`RecoveryTriggered`, `StepLimitReached`, `CircuitOpened`, ..."""
    data: dict[str, Any] = {}


REWOUND = "rewound"
"""The signal of a rewind. The first workflow task after the reset handles it, after all signals delivered again."""

MAX_LINES = 50
"""Lines of `Rewind.left`."""
MAX_LINE_CHARS = 500

MAX_SENDER_CHARS = 100

Sender = Annotated[str, Field(max_length=MAX_SENDER_CHARS)]
"""The name of the person who sends something, as the sender gives it, for the journal."""


class Rewind(Record):
    to_iteration: int
    boundary_at: AwareDatetime
    """The time when that iteration ended. The run's clock ignores the time from then until the rewind."""
    steer: str | None = None
    left: Annotated[tuple[Annotated[str, Field(max_length=MAX_LINE_CHARS)], ...], FailFast()] = Field(
        default=(), max_length=MAX_LINES
    )
    """Irreversible calls that were made after the boundary, one line each. Nothing undoes them."""
    id: str = Field(default="", max_length=64)
    """The sender's own id for it."""
    by: Sender = ""


class ControlTerms(NamedTuple):
    """The part of a run's setup that the control core needs."""

    notify: tuple[NotifyEvent, ...] = ()
    """Events that are sent to people outside."""
    search_attributes: bool = False
    """True if the server knows the search attributes. If it does not, each upsert would fail the workflow task."""
    roll_over_events: int = 3_500
    """Events after which the run continues as new. The server suggests it at 4,096."""
    roll_over_bytes: int = 3_000_000
    full_events: int = 25_000
    """Events at which a run that cannot continue as new ends. The server terminates runs at 51,200 events or 50 MB."""
    full_bytes: int = 25_000_000


class ControlChanges(TypedDict, total=False):
    origin: str
    clock: Clock
    carried_by: str
    doing: str
    is_standing: bool
    is_over: bool
    iteration: int
    inbox: tuple[Intervention, ...]
    inbox_bytes: int
    unheard: int
    intervention_ids: tuple[str, ...]
    pauses: tuple[Intervention, ...]
    paused: bool
    aborted: str | None
    stop: Stop | None
    questions: tuple[Question, ...]
    completions: dict[str, str]
    announced: tuple[str, ...]
    notes: tuple[Note, ...]


class Control(Record):
    """The part of the state for steering a run and asking people. The state of each kind of run inherits it."""

    origin: str
    """Id of the first run of the chain. Resets and continue-as-new keep it, so idempotency keys use it."""
    clock: Clock
    carried_by: str = ""
    """Run id of the previous segment, which passed on this state. A starter cannot know it, nor forge a state."""
    doing: str = "preparing"
    """The run's current work, such as `reasoning` or `acting`, even while a pause or a question holds the run up."""
    is_standing: bool = False
    """True if a pause is holding the run at a checkpoint."""
    is_over: bool = False
    """True if the run is ending, so that it accepts no more decisions."""
    iteration: int = 0
    inbox: tuple[Intervention, ...] = ()
    """Guidance that the loop has not applied yet, in order of arrival."""
    inbox_bytes: int = 0
    unheard: int = 0
    """The number of interventions that arrived while the inbox was full."""
    intervention_ids: tuple[str, ...] = ()
    """Ids of the newest interventions. A second intervention with the same id has no effect."""
    pauses: tuple[Intervention, ...] = ()
    """Pauses with an id that have not held up the run yet."""
    paused: bool = False
    aborted: str | None = None
    """The reason of an abort. None until one arrives."""
    stop: Stop | None = None
    questions: tuple[Question, ...] = ()
    completions: dict[str, str] = {}
    """Digests of the newest completions of calls, by idempotency key. A second completion has no effect."""
    announced: tuple[str, ...] = ()
    """Ids of the questions for which notifications were sent."""
    notes: tuple[Note, ...] = ()
    """Decisions that are not in the history yet."""

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """Questions that somebody still has to decide, in order of asking."""
        return tuple(question for question in self.questions if question.is_open)

    @property
    def phase(self) -> str:
        """The phase as people see it: what holds the run up, or else its current work."""
        if self.is_over:
            return "done"
        if self.open_questions:
            return "waiting"
        return "paused" if self.is_standing else self.doing

    @property
    def name(self) -> str:
        """The name that people know, such as the agent's."""
        return ""

    @property
    def timeout_s(self) -> float:
        raise NotImplementedError

    @property
    def terms(self) -> ControlTerms:
        raise NotImplementedError

    @property
    def is_end_notified(self) -> bool:
        return "ended" in self.terms.notify

    @property
    def is_paused_elsewhere(self) -> bool:
        """True if the clock has to stop for a reason other than a pause or a question of this run."""
        return False

    @property
    def work_elsewhere_text(self) -> str:
        """A note on work that the next segment could not take over, or "". It keeps the run from continuing as new."""
        return ""

    @property
    def not_continued_reason(self) -> str:
        """The reason why a waiting run could not continue as new."""
        return "it waited for people"

    def unavailable_choice_text(self, kind: QuestionKind) -> str:
        """Return a hint on how to decide a question of this kind, for the refusal of an invalid choice, or ""."""
        hints: dict[QuestionKind, str] = {
            "approval": "held calls are decided one by one, by the updates approve and deny",
            "result": "a call that waits for its result is completed by complete_tool_call",
        }
        return hints.get(kind, "")

    def with_control(self, **changes: Unpack[ControlChanges]) -> Self:
        return replace_fields(self, changes, Control.model_fields.keys())

    def with_note(self, event: str, **data: Any) -> Self:
        """Return the state with one more note for the journal. Long texts are cut."""
        short = {key: value[:MAX_NOTE_CHARS] if isinstance(value, str) else value for key, value in data.items()}
        return self.with_control(notes=(*self.notes, Note(event=event, data=short)))

    def with_clock_updated(self, now: datetime) -> Self:
        """Return the state with its clock stopped if something holds up the run, or else running."""
        is_held = self.paused or bool(self.open_questions) or self.is_paused_elsewhere
        clock = self.clock
        if is_held == (clock.stopped_at is not None):
            return self
        return self.with_control(clock=clock.with_stopped_at(now) if is_held else clock.with_resumed_at(now))
