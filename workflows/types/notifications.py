"""What people outside are told: a question that opened, or that a run has ended."""

from typing import Literal

from orga.workflows.types.record import Record

NotifyEvent = Literal["approval", "escalation", "budget", "ended"]
"""The kinds of question that a run asks, and its end."""


class NotifiedCall(Record):
    """A call that a question is about."""

    tool: str
    arguments: str = ""
    """JSON, whole; left out where it does not fit."""
    arguments_bytes: int = 0
    """Where it was left out."""
    arguments_digest: str = ""
    id: str = ""
    """What approves or denies it."""
    reason: str = ""
    approvers: tuple[str, ...] = ()


class Notification(Record):
    """Input of `deliver_notification`, bounded in size. Where it goes and what signs it is known to the worker only."""

    message_id: str
    """Every attempt to deliver it has the same."""
    event: Literal["waiting", "ended", "test"]
    agent: str
    kind: str = ""
    """Of the question."""
    wait_id: str = ""
    question: str = ""
    queue: str = ""
    """Of an escalation, where a tool's recovery names one."""
    limit: str = ""
    """Of a budget: the one that is used up."""
    calls: tuple[NotifiedCall, ...] = ()
    calls_left_out: int = 0
    error: str = ""
    expires_at: str = ""
    """When the first of the calls is denied for want of an answer."""
    commands: tuple[str, ...] = ()
    """What decides it, the likeliest first."""
    reason: str = ""
    """Why the run ended."""
    detail: str = ""
