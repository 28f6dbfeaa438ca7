"""The state of a session: the state of an agent's run, plus its turns and its queue of messages."""

from datetime import datetime
from typing import Self, TypedDict, Unpack

from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.parts import MediaPart
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.sessions.session_input import MAX_MESSAGE_BYTES
from orga.workflows.types.sessions.session_result import TurnResult
from orga.workflows.types.state import AgentState

SESSION_BYTES = 100_000
"""Bytes of JSON for the fields that only a session has: queued messages, message ids, shortened results."""


class QueuedMessage(Record):
    turn: int
    text: str
    cuts: bool = False
    """True if it interrupts the current turn. Such messages come first in the queue."""
    media: tuple[MediaPart, ...] = ()

    def with_media(self, media: tuple[MediaPart, ...]) -> Self:
        return replace_fields(self, {"media": media}) if media else self


class TakenMessage(Record):
    """An accepted message that a session remembers, so that sending it again begins no second turn."""

    turn: int
    """The turn that it began or guided."""
    digest: str
    """Digest of its text. A different text with the same id is refused."""


class SessionChanges(TypedDict, total=False):
    turn: int
    accepted: int
    begun: int
    before: int
    queue: tuple[QueuedMessage, ...]
    taken: dict[str, TakenMessage]
    results: tuple[TurnResult, ...]
    usage: UsageTotals
    tool_calls: ToolCallCounts
    duration_s: float
    is_cut: bool
    closing: bool
    last_end: datetime | None
    idle_since: datetime | None


class Session(Record):
    """The state of a session, in addition to that of any agent's run."""

    turn: int = 0
    """The current turn. 0 between turns."""
    accepted: int = 0
    """The number of the last accepted turn. Turns are numbered from 1."""
    begun: int = 0
    """Turns that have begun. An interrupting message can begin its turn before turns with lower numbers."""
    before: int = 0
    """Iterations of all turns before the current one."""
    queue: tuple[QueuedMessage, ...] = ()
    """Waiting messages. The first begins the next turn."""
    taken: dict[str, TakenMessage] = {}
    """The last accepted messages, by message id."""
    results: tuple[TurnResult, ...] = ()
    """Results of the last turns, in the order in which they ended."""
    # sums over the turns that have ended, without the current one
    usage: UsageTotals = UsageTotals()
    tool_calls: ToolCallCounts = ToolCallCounts()
    duration_s: float = 0.0
    is_cut: bool = False
    """True if the current turn was interrupted."""
    closing: bool = False
    """True if the session ends after the current turn. Queued messages then begin no turn."""
    last_end: datetime | None = None
    """The time at which the last turn ended."""
    idle_since: datetime | None = None
    """The time at which the wait for a message began."""

    def with_changes(self, changes: SessionChanges) -> Self:
        return replace_fields(self, changes)


class SessionState(AgentState):
    idle_timeout_s: float | None = None
    session: Session = Session()

    def with_session(self, **changes: Unpack[SessionChanges]) -> Self:
        return replace_fields(self, {"session": self.session.with_changes(changes)})

    def with_idle_timeout(self, seconds: float) -> Self:
        return replace_fields(self, {"idle_timeout_s": seconds})

    @property
    def counted_iterations(self) -> int:
        """Iterations of the current turn. Their numbers continue through the session."""
        return self.iteration - self.session.before

    @property
    def total_usage(self) -> UsageTotals:
        return self.session.usage.plus_totals(self.usage)

    @property
    def total_calls(self) -> ToolCallCounts:
        return self.session.tool_calls.plus_counts(self.tool_calls)

    @property
    def is_paused_elsewhere(self) -> bool:
        """True while a person holds up a delegate, and between turns."""
        return super().is_paused_elsewhere or not self.session.turn

    @property
    def not_continued_reason(self) -> str:
        return super().not_continued_reason if self.session.turn else "it waited for messages"

    @property
    def task_bytes(self) -> int:
        """Room for the first message, the message of the current turn, and the fields of `Session`."""
        return 2 * MAX_MESSAGE_BYTES + SESSION_BYTES
