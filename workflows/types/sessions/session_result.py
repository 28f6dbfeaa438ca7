"""The public views of a session: the result of a turn, the result of the session, and its status."""

from typing import Any, Literal, Self, TypeVar

from orga.workflows.types.control import StopReason
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.status import AgentResult, AgentStatus, data_of_type

T = TypeVar("T")

TURN_STARTED, TURN_ENDED = "TurnStarted", "TurnEnded"
"""The journal events of a turn."""

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

    def data_as(self, kind: type[T]) -> T:
        """Return the data as a type, as `AgentResult.data_as` does."""
        return data_of_type(kind, self.data, self.output)

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
    """Turns so far, including those whose messages still wait."""
    queued: int = 0
    """Messages that wait for their turn."""
    turn_usage: UsageTotals = UsageTotals()
    """Usage of the current turn."""
    closing: bool = False
    """True if the session ends after the current turn."""
