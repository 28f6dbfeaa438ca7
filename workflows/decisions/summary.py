"""A summary of what is dropped: how long it may be, whether the run can pay for it, what stands in when it fails."""

from collections import Counter

from workflows.decisions.calibration import sent_tokens
from workflows.decisions.estimate import tokens_of
from workflows.types.clipped import clip
from workflows.types.messages import Message, Reply
from workflows.types.ranges import Ranges, within
from workflows.types.state import AgentState, Conversation
from workflows.types.summary import BYTES_PER_TOKEN, HEADER, SUMMARY_CALL, Summary

MAX_TOKENS = 1_000
MIN_TOKENS = 50
SHARE = 5
"""A summary takes at most a fifth of the budget."""

MAX_TOOLS = 20
"""Tools that the fallback names."""


def summary_tokens(token_budget: int) -> int:
    """Return the tokens that a summary may have."""
    return max(min(token_budget // SHARE, MAX_TOKENS), MIN_TOKENS)


def reserved_tokens(limit: int) -> int:
    """Return the estimated tokens of the longest message that holds a summary of `limit` tokens."""
    return tokens_of(limit * BYTES_PER_TOKEN + len(HEADER))


def affords_summary(state: AgentState, limit: int) -> bool:
    """Return whether the run can pay for a summary and the model call that it is for.

    The one reads what goes, the other what stays: together the conversation, once.
    """
    config, usage = state.config, state.usage
    if config.max_model_calls is not None and usage.model_calls + 2 > config.max_model_calls:
        return False
    needed = state.calibration * sent_tokens(state.conversation) + 2 * limit
    return config.max_total_tokens - usage.total_tokens > needed


def with_summary(state: AgentState, drop: Ranges, limit: int, reply: Reply | None) -> AgentState:
    """Return the state with a summary of `drop` at hand, paid for; without a text from a model it is made here."""
    text = reply.text if reply and reply.text.strip() else ""
    call = f"{state.iteration + 1}.{SUMMARY_CALL}" if text else ""
    text = text or fallback_summary(within(state.conversation.messages, drop), limit * BYTES_PER_TOKEN)
    ready = Summary(drop=drop, text=text, call=call)
    update: dict[str, object] = {"conversation": state.conversation.model_copy(update={"ready": ready})}
    if reply is not None:
        update["usage"] = state.usage.plus(reply.usage, reply.cost_usd)
    return state.model_copy(update=update)


def ready_summary(conversation: Conversation, drop: Ranges) -> Summary | None:
    """Return the summary that was written for exactly these messages, if a model call before did not get to use it."""
    return conversation.ready if conversation.ready is not None and conversation.ready.drop == drop else None


def fallback_summary(messages: tuple[Message, ...], max_bytes: int) -> str:
    """Return what can be said of messages without a model: counts, and the summary that was among them."""
    said = [message for message in messages if not message.summary]
    calls = [call.name for message in said for call in message.calls]
    results = sum(message.role == "tool" for message in said)
    lines = [f"Left out: messages {len(said)}, tool calls {len(calls)}, results {results}."]
    if calls:
        counted = Counter(calls).most_common()
        more = f", and {len(counted) - MAX_TOOLS} more" if len(counted) > MAX_TOOLS else ""
        lines.append("Tools called: " + ", ".join(f"{name} x{n}" for name, n in counted[:MAX_TOOLS]) + more + ".")
    earlier = [message.text.removeprefix(HEADER) for message in messages if message.summary]
    return clip("\n".join([*lines, *(f"Before that:\n{text}" for text in earlier)]), max_bytes, "the rest is lost")
