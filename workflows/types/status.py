"""Answers of the queries `status` and `conversation`."""

from typing import Any

from pydantic import Field

from orga.workflows.types.breakers import Breaker
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Item, ShownQuestion
from orga.workflows.types.record import Border, Record
from orga.workflows.types.recovery import DeadLetter
from orga.workflows.types.result import Termination
from orga.workflows.types.state import Child
from orga.workflows.types.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.workplace import Workplace


class Budgets(Record):
    """What is left, each limit beside it; None stands for no limit."""

    iterations: int
    max_iterations: int
    tokens: int
    max_total_tokens: int
    cost_usd: float | None
    max_cost_usd: float | None
    time_s: float
    timeout_s: float
    model_calls: int | None = None
    max_model_calls: int | None = None
    tool_calls: int | None = None
    max_tool_calls: int | None = None


class AgentStatus(Record):
    """Where a run stands."""

    agent: str
    model: str | None
    phase: str
    paused: bool
    iteration: int
    usage: UsageTotals
    tool_calls: ToolCallCounts
    budgets: Budgets
    pending_approvals: list[Item]
    """Calls that wait for a person's yes."""
    plan: Any
    question: str | None
    waiting: list[ShownQuestion] = []
    """What waits for a person."""
    breakers: dict[str, Breaker]
    """By tool; only circuits that have failures."""
    dead_letters: list[DeadLetter] = []
    children: list[Child] = []
    """Delegated runs in flight."""
    unread_interventions: list[dict[str, str]]
    termination: Termination | None
    workplace: Workplace | None = None
    """Of the worker that prepared the run."""


class ShownMessage(Record):
    """One message of the conversation, with its role and call ids."""

    role: str
    text: str
    calls: tuple[ToolCall, ...]
    call_id: str | None
    tool: str | None
    is_error: bool


class Page(Border):
    """Argument of the query `conversation`: which messages."""

    offset: int = Field(default=0, ge=0)
    limit: int | None = Field(default=None, ge=1)
    """At most so many; there may be fewer, since an answer has a size. None follow where none are returned."""


FIRST_PAGE = Page()
