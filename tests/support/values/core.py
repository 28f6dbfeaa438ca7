"""Values of the core with defaults, so that a test states only what it is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from orga.workflows.decisions.begin import initial_state
from orga.workflows.decisions.conversation import reference_and_seen, with_message, with_messages
from orga.workflows.types.context import ContextRef, ReasonRequest, messages_digest, record_digest, short_digest
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.input import AgentInput
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolSpec

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ORIGIN = "first-run"


def at(seconds: float) -> datetime:
    """Return the time this many seconds after the start."""
    return T0 + timedelta(seconds=seconds)


def a_state(task: str = "count the files", **fields: Any) -> AgentState:
    """Return the state of a run that started at T0."""
    return initial_state(AgentInput(task=task), ORIGIN, T0).model_copy(update=fields)


def a_call(name: str = "read", call_id: str = "c1", **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(call_id=call_id, name=name, arguments=arguments)


def a_spec(name: str = "read", **fields: Any) -> ToolSpec:
    """Return a tool's definition; `max_result_bytes` and the like go into its options."""
    options = {key: fields.pop(key) for key in tuple(fields) if key in ToolOptions.model_fields}
    return ToolSpec(name=name, options=ToolOptions(**options), **fields)


def a_setup(*tools: ToolSpec, **fields: Any) -> Setup:
    """Return the setup of a run."""
    known: dict[str, Any] = {"agent": "default", "model": "scripted:model", "tools": tools or (a_spec(),)}
    return Setup(**known | fields)


def a_request(messages: tuple[Message, ...], setup: Setup, iteration: int = 1) -> ReasonRequest:
    """Return the model call with these messages, all of them as full news."""
    conversation = conversation_of(*messages)
    context, _ = reference_and_seen(conversation)
    return request_for(context, setup, iteration)


def request_for(context: ContextRef, setup: Setup, iteration: int = 1) -> ReasonRequest:
    """Return the model call with this context."""
    return ReasonRequest(iteration=iteration, setup=short_digest(record_digest(setup)), context=context)


def conversation_of(*messages: Message, sent: int = 0) -> Conversation:
    """Return a conversation whose first `sent` messages the model has seen."""
    conversation = with_messages(Conversation(), messages[:sent])
    if sent:
        conversation = conversation.model_copy(update={"sent": sent, "digest": messages_digest(messages[:sent])})
    for message in messages[sent:]:
        conversation = with_message(conversation, message)
    return conversation


def user(text: str, *, pinned: bool = False) -> Message:
    """Return a user message."""
    return Message.of("user", text, pinned=pinned)


def usage_totals(tokens: int = 0, cost_usd: float | None = None) -> UsageTotals:
    """Return totals of this many tokens."""
    return UsageTotals(total_tokens=tokens, cost_usd=cost_usd)
