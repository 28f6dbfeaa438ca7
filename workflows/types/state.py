"""The whole state of a run: one value, carried through continue-as-new."""

from datetime import datetime

from workflows.types.context import InterventionKind, News, Setup
from workflows.types.input import AgentInput
from workflows.types.messages import Message
from workflows.types.record import Record
from workflows.types.result import StopReason
from workflows.types.usage import ToolCallCounts, UsageTotals


class Intervention(Record):
    """A signal that was delivered and waits to be taken in."""

    kind: InterventionKind
    text: str = ""


class Conversation(Record):
    """The messages, of which the model has seen the first `sent`; `news` says where the others come from."""

    messages: tuple[Message, ...] = ()
    sent: int = 0
    digest: str = ""
    """Digest of the first `sent` messages."""
    news: tuple[News, ...] = ()
    tokens: int = 0
    """Estimated tokens of all messages."""
    size: int = 0
    """UTF-8 bytes of all messages, near enough for the payload limit."""


class Clock(Record):
    """The run's time: seconds since the start, pauses left out."""

    started_at: datetime
    paused_at: datetime | None = None
    paused_s: float = 0.0

    def elapsed_s(self, now: datetime) -> float:
        """Return the seconds that count."""
        end = self.paused_at or now
        return (end - self.started_at).total_seconds() - self.paused_s


class AgentState(Record):
    """Everything that a run knows. Set in `@workflow.init`, before any handler can run."""

    input: AgentInput
    origin: str
    """Id of the first run of the chain, stable through reset and continue-as-new; idempotency keys build on it."""
    clock: Clock
    setup: Setup | None = None
    phase: str = "preparing"
    iteration: int = 0
    usage: UsageTotals = UsageTotals()
    tool_calls: ToolCallCounts = ToolCallCounts()
    conversation: Conversation = Conversation()
    inbox: tuple[Intervention, ...] = ()
    """Guidance that the loop has not taken in yet, in order of arrival."""
    inbox_bytes: int = 0
    """UTF-8 bytes that wait in the inbox."""
    carried_by: str = ""
    """Id of the run that carried this state over; a starter cannot know it, so it cannot make a state up."""
    aborted: str | None = None
    """Why, once an abort arrived."""
    repairs: int = 0
    """Unusable replies in a row."""
    denials: dict[str, int] = {}
    """Denials that were repeated without a break, with the number of iterations in a row."""
    output: str = ""
    """The last answer that the gate let through."""
    partial: str = ""
    """The answer that is being continued, after the output limit cut it."""
    stop: tuple[StopReason, str] | None = None
    """The ending, once it is decided."""
