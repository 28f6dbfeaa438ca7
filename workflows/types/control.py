"""What any workflow of ours knows of itself: its clock, its inbox, what holds it up, its end; nothing of an agent."""

from datetime import datetime
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

Stop = tuple[StopReason, str]
"""How a run ends, and one line for people."""

InterventionKind = Literal["steer", "add_context", "pause", "resume", "abort"]


class Intervention(Record):
    """A signal that was delivered and waits to be taken in."""

    kind: InterventionKind
    text: str = ""
    size: int = 0
    """UTF-8 bytes that were sent, where the text was cut; 0 where all of it is there."""
    is_for_delegates: bool = True
    """Whether delegates at work are told, too; else it is for the model of this run alone."""

    def with_cut(self, text: str, size: int) -> Self:
        """Return it with what is kept of its text, of which there were `size` bytes."""
        return replace_fields(self, {"text": text, "size": size})


class Clock(Record):
    """The run's time: seconds since the start; pauses and waits for a person are left out."""

    started_at: datetime
    stopped_at: datetime | None = None
    stopped_s: float = 0.0

    def elapsed_s(self, now: datetime) -> float:
        """Return the seconds that count."""
        end = self.stopped_at or now
        return max((end - self.started_at).total_seconds() - self.stopped_s, 0.0)

    def stood_still_s(self, now: datetime) -> float:
        """Return the seconds that do not count, up to now."""
        return self.stopped_s + (0.0 if self.stopped_at is None else (now - self.stopped_at).total_seconds())

    def with_started_at(self, started_at: datetime) -> Self:
        """Return the clock of a run that began then."""
        return replace_fields(self, {"started_at": started_at})

    def with_stopped_at(self, now: datetime) -> Self:
        """Return the clock, standing still from now on."""
        return replace_fields(self, {"stopped_at": now})

    def with_resumed_at(self, now: datetime) -> Self:
        """Return the clock, going again; what it stood still for is left out."""
        return replace_fields(self, {"stopped_at": None, "stopped_s": self.stood_still_s(now)})

    def with_left_out(self, seconds: float) -> Self:
        """Return the clock for which these seconds do not count."""
        return replace_fields(self, {"stopped_s": self.stopped_s + seconds})


NOTES_MEMO = "orga_notes"
"""The memo key whose every upsert holds the notes since the upsert before."""

MAX_NOTE_CHARS = 300
"""Of a text in a note."""


class Note(Record):
    """An entry of the journal that no activity stands for."""

    event: str
    """`RecoveryTriggered`, `StepLimitReached`, `CircuitOpened`, ..."""
    data: dict[str, Any] = {}


REWOUND = "rewound"
"""The signal that the first workflow task after a reset sees, behind all that the server delivered again."""

MAX_LINE_CHARS = 500
MAX_LINES = 50


class Rewind(Record):
    """What a run that was set back is told."""

    to_iteration: int
    boundary_at: AwareDatetime
    """When that iteration had ended: the time from then until now does not count."""
    steer: str | None = None
    left: Annotated[tuple[Annotated[str, Field(max_length=MAX_LINE_CHARS)], ...], FailFast()] = Field(
        default=(), max_length=MAX_LINES
    )
    """Irreversible calls that were carried out behind the boundary, a line each: nothing undoes them."""


class ControlTerms(NamedTuple):
    """What the control of a run goes by, as its worker's setup says."""

    notify: tuple[NotifyEvent, ...] = ()
    """What people outside are told of."""
    search_attributes: bool = False
    """Whether the server knows them; without them an upsert would fail every workflow task."""
    roll_over_events: int = 3_500
    """Events of a history after which the run continues as new; the server suggests it at 4,096."""
    roll_over_bytes: int = 3_000_000
    full_events: int = 25_000
    """Events at which a run ends that could not continue as new; the server terminates it at 51,200, and at 50 MB."""
    full_bytes: int = 25_000_000


class ControlChanges(TypedDict, total=False):
    """What `with_control` takes: the fields of `Control`."""

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
    paused: bool
    aborted: str | None
    stop: Stop | None
    questions: tuple[Question, ...]
    announced: tuple[str, ...]
    notes: tuple[Note, ...]


class Control(Record):
    """What people steer a run by, and what they are told and asked. A workflow's state inherits it."""

    origin: str
    """Id of the first run of the chain, stable through reset and continue-as-new; idempotency keys build on it."""
    clock: Clock
    carried_by: str = ""
    """Id of the run that carried this state over; a starter cannot know it, so it cannot make a state up."""
    doing: str = "preparing"
    """What the run is at, whatever holds it up there: `reasoning`, `acting`..."""
    is_standing: bool = False
    """Whether it stands where a pause holds it up."""
    is_over: bool = False
    """Whether it is ending: nobody decides anything any more."""
    iteration: int = 0
    inbox: tuple[Intervention, ...] = ()
    """Guidance that the loop has not taken in yet, in order of arrival."""
    inbox_bytes: int = 0
    """UTF-8 bytes that wait in the inbox."""
    unheard: int = 0
    """Guidance that arrived while the inbox was full."""
    paused: bool = False
    aborted: str | None = None
    """Why, once an abort arrived."""
    stop: Stop | None = None
    """The ending, once it is decided."""
    questions: tuple[Question, ...] = ()
    """What people are asked, in order of asking."""
    announced: tuple[str, ...] = ()
    """Those of them that people outside were told of, where the setup says so."""
    notes: tuple[Note, ...] = ()
    """Decisions that are not in the history yet."""

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """What somebody has to decide yet, in order of asking."""
        return tuple(question for question in self.questions if question.is_open)

    @property
    def phase(self) -> str:
        """Where the run stands, as people are told: what holds it up, else what it is at."""
        if self.is_over:
            return "done"
        if self.open_questions:
            return "waiting"
        return "paused" if self.is_standing else self.doing

    @property
    def name(self) -> str:
        """What people know it by: the agent, the goal."""
        return ""

    @property
    def timeout_s(self) -> float:
        """The seconds that its clock gives it now."""
        raise NotImplementedError

    @property
    def terms(self) -> ControlTerms:
        """What else it goes by now."""
        raise NotImplementedError

    @property
    def is_end_told(self) -> bool:
        """Whether people are told of the end."""
        return "ended" in self.terms.notify

    @property
    def is_held_elsewhere(self) -> bool:
        """Whether a person holds up a run that this one waits for."""
        return False

    @property
    def under_way_elsewhere(self) -> str:
        """What is under way that no other run could take over, "" where nothing is: it cannot continue as new then."""
        return ""

    @property
    def why_it_stayed(self) -> str:
        """Why a run that waited could not continue as new."""
        return "it waited for people"

    def other_way(self, kind: QuestionKind) -> str:
        """What is said of a choice that this kind of question does not have, "" where its choices say it."""
        return "held calls are decided one by one, by the updates approve and deny" if kind == "approval" else ""

    def with_control(self, **changes: Unpack[ControlChanges]) -> Self:
        """Return the state with these changes."""
        return replace_fields(self, changes, _CONTROL)

    def with_note(self, event: str, **data: Any) -> Self:
        """Return the state with one more note for the journal; long texts are cut."""
        short = {key: value[:MAX_NOTE_CHARS] if isinstance(value, str) else value for key, value in data.items()}
        return self.with_control(notes=(*self.notes, Note(event=event, data=short)))

    def with_clock_updated(self, now: datetime) -> Self:
        """Return the state with its clock stopped or going, as its pause and its questions say."""
        is_held = self.paused or bool(self.open_questions) or self.is_held_elsewhere
        clock = self.clock
        if is_held == (clock.stopped_at is not None):
            return self
        return self.with_control(clock=clock.with_stopped_at(now) if is_held else clock.with_resumed_at(now))


_CONTROL = frozenset(Control.model_fields)
