"""What a session shows of itself: how a turn ended, how the session did, and where it stands."""

from typing import Any, Literal, Self

from orga.workflows.types.control import StopReason
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.status import AgentResult, AgentStatus
from orga.workflows.types.usage import ToolCallCounts, UsageTotals

TURN_STARTED, TURN_ENDED = "TurnStarted", "TurnEnded"
"""As the journal calls them."""

TurnReason = StopReason | Literal["interrupted"]
"""As a run's, or `interrupted`: somebody cut the turn."""


class TurnTermination(Record):
    """Why a turn ended; `detail` is one line for people."""

    reason: TurnReason
    detail: str = ""


class TurnResult(Record):
    """How a turn ended: like an agent's run, with what it used alone."""

    turn: int
    """Counted from 1, in the order in which messages were taken."""
    output: str
    data: Any = None
    termination: TurnTermination
    iterations: int
    usage: UsageTotals
    tool_calls: ToolCallCounts
    duration_s: float
    """Seconds of workflow time, pauses and waits for a person left out."""

    def with_output(self, output: str, data: Any) -> Self:
        """Return the result with another answer."""
        return replace_fields(self, {"output": output, "data": data})


class SessionResult(AgentResult):
    """Result of a session: totals over all of its turns; `output` is the last answer."""

    kind: Literal["session"] = "session"
    turns: int
    """That were begun."""
    latest: tuple[TurnResult, ...] = ()
    """The last turns, as many as a session keeps."""


class SessionStatus(AgentStatus):
    """Where a session stands: `usage` and `tool_calls` are of all turns, `budgets` of this or the next."""

    kind: Literal["session"] = "session"
    turn: int = 0
    """That is under way; 0 between turns."""
    turns: int = 0
    """Messages that became turns of their own so far, those that wait among them."""
    queued: int = 0
    """Messages that wait for their turn."""
    turn_usage: UsageTotals = UsageTotals()
    """Of the turn under way."""
    closing: bool = False
    """Whether it ends after the turn under way."""
