"""What any workflow of ours knows of itself: its clock, its inbox, what holds it up, its end; nothing of an agent."""

from datetime import datetime
from typing import Literal, Self, TypedDict, Unpack

from orga.workflows.types.journal import Note
from orga.workflows.types.questions import Wait
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.result import StopReason

InterventionKind = Literal["steer", "add_context", "pause", "resume", "abort"]


class Intervention(Record):
    """A signal that was delivered and waits to be taken in."""

    kind: InterventionKind
    text: str = ""
    size: int = 0
    """UTF-8 bytes that were sent, where the text was cut; 0 where all of it is there."""

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

    def with_started_at(self, started_at: datetime) -> Self:
        """Return the clock of a run that began then."""
        return replace_fields(self, {"started_at": started_at})

    def with_stopped_at(self, now: datetime) -> Self:
        """Return the clock, standing still from now on."""
        return replace_fields(self, {"stopped_at": now})

    def with_resumed_at(self, now: datetime) -> Self:
        """Return the clock, going again; what it stood still for is left out."""
        stood_s = 0.0 if self.stopped_at is None else (now - self.stopped_at).total_seconds()
        return replace_fields(self, {"stopped_at": None, "stopped_s": self.stopped_s + stood_s})

    def with_left_out(self, seconds: float) -> Self:
        """Return the clock for which these seconds do not count."""
        return replace_fields(self, {"stopped_s": self.stopped_s + seconds})


class ControlChanges(TypedDict, total=False):
    """What `with_control` takes: the fields of `Control`."""

    origin: str
    clock: Clock
    carried_by: str
    phase: str
    iteration: int
    inbox: tuple[Intervention, ...]
    inbox_bytes: int
    unheard: int
    paused: bool
    aborted: str | None
    stop: tuple[StopReason, str] | None
    waits: tuple[Wait, ...]
    announced: tuple[str, ...]
    notes: tuple[Note, ...]


class Control(Record):
    """What people steer a run by, and what they are told and asked. A workflow's state inherits it."""

    origin: str
    """Id of the first run of the chain, stable through reset and continue-as-new; idempotency keys build on it."""
    clock: Clock
    carried_by: str = ""
    """Id of the run that carried this state over; a starter cannot know it, so it cannot make a state up."""
    phase: str = "preparing"
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
    stop: tuple[StopReason, str] | None = None
    """The ending, once it is decided."""
    waits: tuple[Wait, ...] = ()
    """What waits for a person, in order of asking."""
    announced: tuple[str, ...] = ()
    """Those of them that people outside were told of, where the setup says so."""
    notes: tuple[Note, ...] = ()
    """Decisions that are not in the history yet."""

    def with_control(self, **changes: Unpack[ControlChanges]) -> Self:
        """Return the state with these changes."""
        return replace_fields(self, changes, _CONTROL)


_CONTROL = frozenset(Control.model_fields)
