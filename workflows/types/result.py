"""How a run ended: the result of `AgentWorkflow`. Users script against its keys."""

from typing import Any

from orga.workflows.types.control import StopReason
from orga.workflows.types.record import Record
from orga.workflows.types.usage import ToolCallCounts, UsageTotals


class Termination(Record):
    """Why the run ended; `detail` is one line for people."""

    reason: StopReason
    detail: str = ""


class AgentResult(Record):
    """Result of a run: every ending has one, with all that was gathered."""

    output: str
    data: Any
    iterations: int
    termination: Termination
    duration_s: float
    """Seconds of workflow time, pauses left out."""
    usage: UsageTotals
    tool_calls: ToolCallCounts
    conversation_digest: str
    """`sha256:` and 64 hex characters; empty for a run that never had a message."""
