"""The state of a session (an agent's run and its turns), and the result and status that scripts read."""

from datetime import datetime
from typing import Any, Literal, Self, TypedDict, Unpack

from orga.workflows.types.control import StopReason
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.sessions.input import MAX_MESSAGE_BYTES
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import AgentResult, AgentStatus
from orga.workflows.types.usage import ToolCallCounts, UsageTotals

TURN_STARTED, TURN_ENDED = "TurnStarted", "TurnEnded"
"""Names of the journal events."""

TurnReason = StopReason | Literal["interrupted"]
"""The reasons of a run, or `interrupted` if somebody interrupted the turn."""


class TurnTermination(Record):
    """The reason why a turn ended. `detail` is one line for people."""

    reason: TurnReason
    detail: str = ""


class TurnResult(Record):
    """Result of a turn: like that of an agent's run, with the usage of this turn alone."""

    turn: int
    """Counted from 1, in the order in which messages were accepted."""
    output: str
    data: Any = None
    termination: TurnTermination
    iterations: int
    usage: UsageTotals
    tool_calls: ToolCallCounts
    duration_s: float
    """Seconds of workflow time. Pauses and waits for people do not count."""

    def with_output(self, output: str, data: Any) -> Self:
        return replace_fields(self, {"output": output, "data": data})


class SessionResult(AgentResult):
    """Result of a session: totals over all of its turns. `output` is the last answer."""

    kind: Literal["session"] = "session"
    turns: int
    """The number of turns that began."""
    latest: tuple[TurnResult, ...] = ()
    """The last turns, as many as a session keeps."""


class SessionStatus(AgentStatus):
    """Status of a session. `usage` and `tool_calls` are totals, and `budgets` are those of the current or next turn."""

    kind: Literal["session"] = "session"
    turn: int = 0
    """The current turn. 0 between turns."""
    turns: int = 0
    """Messages that became turns so far, including those that wait."""
    queued: int = 0
    """Messages that wait for their turn."""
    turn_usage: UsageTotals = UsageTotals()
    """Usage of the current turn."""
    closing: bool = False
    """True if the session ends after the current turn."""


SESSION_BYTES = 100_000
"""Bytes of JSON that a session's state may take in addition to a run's: waiting messages, ids, shortened results."""


class QueuedMessage(Record):
    """A message that waits for its turn."""

    turn: int
    text: str
    cuts: bool = False
    """True if it interrupted the turn before it. Such messages come before those that only wait."""


class TakenMessage(Record):
    """A record of a message."""

    turn: int
    """The turn that it became part of."""
    digest: str
    """Digest of its text, so that nobody can send another text with its id."""


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
    """Messages that became turns of their own: the number of the last."""
    begun: int = 0
    """The number of turns that began."""
    before: int = 0
    """Iterations before the current or next turn."""
    queue: tuple[QueuedMessage, ...] = ()
    """Waiting messages, in the order in which they begin."""
    taken: dict[str, TakenMessage] = {}
    """The last messages, by their ids."""
    results: tuple[TurnResult, ...] = ()
    """Results of the last turns, in the order in which they ended."""
    usage: UsageTotals = UsageTotals()
    """Usage of all turns that have ended."""
    tool_calls: ToolCallCounts = ToolCallCounts()
    duration_s: float = 0.0
    is_cut: bool = False
    """True if somebody has interrupted the current turn."""
    closing: bool = False
    last_end: datetime | None = None
    """When the last turn ended."""
    idle_since: datetime | None = None
    """When the wait for a message began."""

    def with_changes(self, changes: SessionChanges) -> Self:
        return replace_fields(self, changes)


class SessionState(AgentState):
    """The whole state of a session."""

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
        """Usage of all turns, including the current one."""
        return self.session.usage.plus_totals(self.usage)

    @property
    def total_calls(self) -> ToolCallCounts:
        """Calls of all turns, including the current one."""
        return self.session.tool_calls.plus_counts(self.tool_calls)

    @property
    def is_paused_elsewhere(self) -> bool:
        """True if the clock stops without a pause or a question. Between turns it does too."""
        return super().is_paused_elsewhere or not self.session.turn

    @property
    def not_continued_reason(self) -> str:
        """The reason why a session could not continue as new."""
        return "it waited for messages" if not self.session.turn else super().not_continued_reason

    @property
    def task_bytes(self) -> int:
        """Bytes for the first message and that of the current turn, and for the records of turns."""
        return 2 * MAX_MESSAGE_BYTES + SESSION_BYTES
