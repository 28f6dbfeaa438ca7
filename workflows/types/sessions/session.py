"""The state of a session: an agent's run, and what it knows of its turns."""

from datetime import datetime
from typing import Self, TypedDict, Unpack

from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.sessions.input import MAX_MESSAGE_BYTES
from orga.workflows.types.sessions.result import TurnResult
from orga.workflows.types.state import AgentState
from orga.workflows.types.usage import ToolCallCounts, UsageTotals

SESSION_BYTES = 100_000
"""That the state of a session may take as JSON beside that of a run: messages that wait, ids, results that were cut."""


class QueuedMessage(Record):
    """A message that waits for its turn."""

    turn: int
    text: str
    cuts: bool = False
    """Whether it came to cut the turn before it, and so stands ahead of those that only wait."""


class TakenMessage(Record):
    """What is remembered of a message."""

    turn: int
    """That it became part of."""
    digest: str
    """Of what it says, so that no id is sent with other words."""


class SessionChanges(TypedDict, total=False):
    """What `with_session` takes: the fields of `Session`."""

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
    """What a session knows beside what any agent's run knows."""

    turn: int = 0
    """That is under way; 0 between turns."""
    accepted: int = 0
    """Messages that became turns of their own: the number of the last."""
    begun: int = 0
    """Turns that were begun."""
    before: int = 0
    """Iterations before the turn under way, or the next one."""
    queue: tuple[QueuedMessage, ...] = ()
    """Messages that wait, in the order in which they are begun."""
    taken: dict[str, TakenMessage] = {}
    """The last messages, by their ids."""
    results: tuple[TurnResult, ...] = ()
    """Of the last turns, in the order in which they ended."""
    usage: UsageTotals = UsageTotals()
    """Of all turns that have ended."""
    tool_calls: ToolCallCounts = ToolCallCounts()
    duration_s: float = 0.0
    is_cut: bool = False
    """Whether somebody has cut the turn under way."""
    closing: bool = False
    last_end: datetime | None = None
    """When the last turn ended."""
    idle_since: datetime | None = None
    """When the wait for a message began."""

    def with_changes(self, changes: SessionChanges) -> Self:
        """Return what is known with these changes."""
        return replace_fields(self, changes)


class SessionState(AgentState):
    """All that a session knows."""

    idle_timeout_s: float | None = None
    session: Session = Session()

    def with_session(self, **changes: Unpack[SessionChanges]) -> Self:
        """Return the state with these changes of what it knows of its turns."""
        return replace_fields(self, {"session": self.session.with_changes(changes)})

    def with_idle_timeout(self, seconds: float) -> Self:
        """Return the state of a session that ends after so many seconds without a message."""
        return replace_fields(self, {"idle_timeout_s": seconds})

    @property
    def counted_iterations(self) -> int:
        """Those of the turn; their numbers go on through the session."""
        return self.iteration - self.session.before

    @property
    def total_usage(self) -> UsageTotals:
        """What all turns have used, the one under way among them."""
        return self.session.usage.plus_totals(self.usage)

    @property
    def total_calls(self) -> ToolCallCounts:
        """The calls of all turns, the one under way among them."""
        return self.session.tool_calls.plus_counts(self.tool_calls)

    @property
    def is_held_elsewhere(self) -> bool:
        """Whether its clock stands still without a pause or a question: between turns it does, too."""
        return super().is_held_elsewhere or not self.session.turn

    @property
    def why_it_stayed(self) -> str:
        """Why a session could not continue as new."""
        return "it waited for messages" if not self.session.turn else super().why_it_stayed

    @property
    def room_for_tasks(self) -> int:
        """The first message, and that of the turn under way; what is known of turns beside."""
        return 2 * MAX_MESSAGE_BYTES + SESSION_BYTES
