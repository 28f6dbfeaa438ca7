"""What the gate is asked and what it answers."""

from typing import Any, Literal

from workflows.types.delegation import DelegateSpec
from workflows.types.messages import ToolCall
from workflows.types.record import Record
from workflows.types.tools import ToolSpec

Decision = Literal["allow", "deny", "invalid", "approval"]
"""`invalid`: refused before any policy was asked (unknown tool, arguments or an answer that do not fit); `approval`: a
person has to say yes first."""

Purpose = Literal["reply", "hydration", "fallback", "requeue", "saga", "compensation", "ending"]
"""What a call is for: the model's reply, a lookup before it, in place of one that failed, a dead letter sent again, a
step of a saga, taking one back; `ending`: text that a run without an answer would bring."""


ANSWER = "(answer)"
"""Stands for the final answer where a call would stand; no tool can have such a name."""


class ApprovalTerms(Record):
    """Who may approve a call, and until when."""

    approvers: tuple[str, ...] = ()
    """Names that may decide; empty: anyone who may send updates to the run."""
    expires_s: float = 86_400.0
    """Seconds without a decision after which the call is denied."""


class GateRequest(Record):
    """Input of `gate`: the calls of one reply, or the final answer."""

    agent: str
    iteration: int
    engine: str = ""
    """The policy engine that the run began under."""
    calls: tuple[ToolCall, ...] = ()
    places: tuple[str, ...] = ()
    """Where each of `calls` is carried out: the ids of their activities, which permits are bound to."""
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
    purpose: Purpose = "reply"
    depth: int = 0
    """Delegations that lead to this run."""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content has entered the conversation."""
    left: dict[str, float] = {}
    """What is left of each budget that is limited: `iterations`, `tokens`, `cost_usd`, `time_s`, ..."""
    approved_by: str = ""
    """Who has approved the one proposal of this request, which is judged once more."""
    approved_version: str = ""
    """The version of the policy set that asked for the approval."""


class Verdict(Record):
    """The decision on one proposal; `reason` is what the model is told."""

    decision: Decision
    reason: str = ""
    tools: tuple[str, ...] | None = None
    """Of an allowed delegation: the most that the other agent may use; None leaves it all of its own."""
    arguments: dict[str, Any] | None = None
    """The arguments that policy put in place of the model's; they were checked and judged again."""
    approval: ApprovalTerms | None = None
    policies: tuple[str, ...] = ()
    """Ids of the policies that decided."""
    version: str = ""
    """Of the policy set."""
    permit: str = ""
    """The gate's signature on an allowed call, where workers have a key: without it no worker carries the call out."""


class Verdicts(Record):
    """Result of `gate`: one verdict for each call, in call order; one for a final answer."""

    verdicts: tuple[Verdict, ...]
    about: Literal["", "ending"] = ""
    """`ending`: not on the reply, but on what the run brings in place of an answer."""
