"""What the gate is asked and what it answers."""

from typing import Any, Literal

from workflows.types.delegation import DelegateSpec
from workflows.types.messages import ToolCall
from workflows.types.record import Record
from workflows.types.tools import ToolSpec

Decision = Literal["allow", "deny", "invalid"]
"""`invalid`: refused before any policy was asked (unknown tool, arguments or an answer that do not fit)."""


class GateRequest(Record):
    """Input of `gate`: the calls of one reply, or the final answer."""

    agent: str
    iteration: int
    calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    specs: tuple[ToolSpec, ...] = ()
    """The offered tools that `calls` name."""
    offered: tuple[str, ...] = ()
    tenant: str | None = None
    trusted_context: dict[str, Any] = {}
    delegates: tuple[DelegateSpec, ...] = ()
    """Agents that a `delegate` call may name."""
    output_schema: dict[str, Any] | None = None
    """What `answer` has to fit."""


class Verdict(Record):
    """The decision on one proposal; `reason` is what the model is told."""

    decision: Decision
    reason: str = ""
    tools: tuple[str, ...] | None = None
    """Of an allowed delegation: the most that the other agent may use; None leaves it all of its own."""


class Verdicts(Record):
    """Result of `gate`: one verdict for each call, in call order; one for a final answer."""

    verdicts: tuple[Verdict, ...]
