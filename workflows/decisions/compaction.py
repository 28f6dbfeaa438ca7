"""Compaction: the strategies of `context_strategy` for a conversation that exceeds its budget."""

from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

from orga.workflows.decisions.conversation import (
    MAX_CONVERSATION_BYTES,
    estimated_message_tokens,
    estimated_sent_tokens,
    estimated_tokens,
    is_within_budget,
    message_size,
    with_messages,
)
from orga.workflows.types.context import ContextRef
from orga.workflows.types.conversation import (
    BYTES_PER_TOKEN,
    SUMMARY_CALL,
    SUMMARY_HEADER,
    Conversation,
    Summary,
    is_dropped_last,
    latest_turn,
    must_keep_first,
)
from orga.workflows.types.input import ContextStrategy
from orga.workflows.types.messages import (
    Message,
    Ranges,
    Reply,
    masked_message,
    messages_within,
    range_indexes,
    ranges_length,
    ranges_of,
    with_masks,
)
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clip

KEEP_SHARE = 0.7
"""Share of the budget that dropping leaves. Rare and large cuts keep providers' prompt caches alive longer."""


def messages_to_drop(conversation: Conversation, token_budget: int, reserve: int = 0) -> Ranges:
    """Return the ranges of messages to drop, oldest first. Empty while the conversation fits.

    A call and its results go together. These stay: the task, the beginning of the current turn, pinned messages, and
    everything from the model's last message on. If pinned messages alone exceed the budget or the payload, the oldest
    of them go too, but never the task. If the model has replied since, what it saw last goes only if the rest would
    not fit. `reserve` tokens are freed in addition.
    """
    if is_within_budget(conversation, token_budget):
        return ()
    target_tokens = token_budget * KEEP_SHARE - reserve
    tokens, size = conversation.tokens, conversation.size
    dropped: set[int] = set()
    seen_last = latest_group(conversation.messages[: conversation.sent])
    for start, stop in _groups(conversation, pinned=False):
        if size <= MAX_CONVERSATION_BYTES * KEEP_SHARE and tokens <= target_tokens:
            break
        if start >= seen_last and size <= MAX_CONVERSATION_BYTES and tokens <= token_budget - reserve:
            break  # dropping what the model saw last only saves room for later
        sizes = [message_size(message) for message in conversation.messages[start:stop]]
        tokens -= sum(map(estimated_tokens, sizes))
        size -= sum(sizes)
        dropped |= set(range(start, stop))
    return ranges_of(dropped | _pinned_to_drop(conversation, token_budget, size))


def _pinned_to_drop(conversation: Conversation, token_budget: int, size: int) -> set[int]:
    """Return the pinned messages to drop, the oldest first. `size` is the bytes of all messages left so far."""
    turn_start = latest_turn(conversation.messages).start
    starts = [start for start, _ in _groups(conversation, pinned=True) if start != turn_start]
    sizes = {start: message_size(conversation.messages[start]) for start in starts}
    tokens = sum(map(estimated_tokens, sizes.values()))
    if size <= MAX_CONVERSATION_BYTES and tokens <= token_budget:
        return set()
    dropped: set[int] = set()
    for start, message_bytes in sizes.items():
        if size <= MAX_CONVERSATION_BYTES * KEEP_SHARE and tokens <= token_budget:
            break
        size, tokens = size - message_bytes, tokens - estimated_tokens(message_bytes)
        dropped.add(start)
    return dropped


def latest_group(messages: tuple[Message, ...]) -> int:
    """Return the index of the model's last message, where the last group starts.

    All messages after it belong to that group. After continue-as-new the model may not have seen them yet.
    """
    return max((i for i, message in enumerate(messages) if message.role == "assistant"), default=len(messages))


def _groups(conversation: Conversation, pinned: bool) -> list[tuple[int, int]]:
    """Return the groups that may go, pinned ones or others. A group is a message and its tool results.

    The task never goes. Nor does the group that the model saw last, unless the model has replied since.
    """
    messages, sent = conversation.messages[: conversation.sent], conversation.sent
    has_replied = any(message.role == "assistant" for message in conversation.messages[sent:])
    latest = sent if has_replied else latest_group(messages)
    starts = [i for i, message in enumerate(messages) if message.role != "tool"]
    groups = list(pairwise([*starts, len(messages)]))
    if messages and must_keep_first(messages):
        groups = groups[1:]
    if not has_replied:
        groups = groups[:-1]
    turn = latest_turn(conversation.messages)
    return [group for group in groups if group[0] < latest and is_dropped_last(messages, group[0], turn) == pinned]


MIN_UNMASKED_MESSAGES = 6
"""The number of latest messages that keep their text."""


def results_to_mask(conversation: Conversation) -> Ranges:
    """Return the results to mask: all that are older than the latest messages and that masking makes shorter.

    The model's last message, its results, and messages that it has not seen always keep their text.
    """
    messages, sent = conversation.messages, conversation.sent
    end = min(len(messages) - MIN_UNMASKED_MESSAGES, latest_group(messages[:sent]))
    older = enumerate(messages[: max(end, 0)])
    return ranges_of(i for i, message in older if not message.pinned and masked_message(message) is not message)


MAX_SUMMARY_TOKENS = 1_000
MIN_SUMMARY_TOKENS = 50

MAX_SUMMARY_TOOLS = 20


def summary_tokens(token_budget: int) -> int:
    """Return the tokens that a summary may take: a fifth of the budget, within bounds."""
    return max(min(token_budget // 5, MAX_SUMMARY_TOKENS), MIN_SUMMARY_TOKENS)


def reserved_tokens(limit: int) -> int:
    """Return the estimated tokens of the longest message with a summary of `limit` tokens."""
    return estimated_tokens(limit * BYTES_PER_TOKEN + len(SUMMARY_HEADER))


def can_afford_summary(state: AgentState, limit: int) -> bool:
    """Return True if the run can pay for a summary and the next model call.

    The call for the summary reads the dropped messages, and the next call reads the others. Together they read the
    conversation once. The summary itself counts twice: one call writes it, the other reads it.
    """
    config, usage = state.config, state.usage
    if config.max_model_calls is not None and usage.model_calls + 2 > config.max_model_calls:
        return False
    needed = state.calibration * estimated_sent_tokens(state.conversation) + 2 * limit
    return config.max_total_tokens - usage.total_tokens > needed


def with_summary(state: AgentState, drop: Ranges, limit: int, reply: Reply | None) -> AgentState:
    """Return the state with a ready summary of `drop`, and its cost. Without a reply, a fallback replaces its text."""
    text = reply.text if reply and reply.text.strip() else ""
    call = f"{state.iteration + 1}.{SUMMARY_CALL}" if text else ""
    text = text or fallback_summary(messages_within(state.conversation.messages, drop), limit * BYTES_PER_TOKEN)
    ready = Summary(drop=drop, text=text, call=call)
    state = state.with_dialogue(conversation=state.conversation.with_fields(ready=ready))
    return state if reply is None else state.with_usage_of(reply)


def ready_summary(conversation: Conversation, drop: Ranges) -> Summary | None:
    """Return the ready summary if it is about exactly these messages. It is ready until a model call uses it."""
    return conversation.ready if conversation.ready is not None and conversation.ready.drop == drop else None


def fallback_summary(messages: tuple[Message, ...], max_bytes: int) -> str:
    """Return a summary that needs no model: counts, and the text of the earlier summary if there is one."""
    others = [message for message in messages if not message.summary]
    calls = [call.name for message in others for call in message.calls]
    results = sum(message.role == "tool" for message in others)
    lines = [f"Left out: messages {len(others)}, tool calls {len(calls)}, results {results}."]
    if calls:
        counted = Counter(calls).most_common()
        more = f", and {len(counted) - MAX_SUMMARY_TOOLS} more" if len(counted) > MAX_SUMMARY_TOOLS else ""
        tools = ", ".join(f"{name} x{count}" for name, count in counted[:MAX_SUMMARY_TOOLS])
        lines.append(f"Tools called: {tools}{more}.")
    earlier = [message.text.removeprefix(SUMMARY_HEADER) for message in messages if message.summary]
    return clip("\n".join([*lines, *(f"Before that:\n{text}" for text in earlier)]), max_bytes, "the rest is lost")


_NO_TOKEN_LIMIT = 10**12


class Compaction(NamedTuple):
    drop: Ranges = ()
    mask: Ranges = ()
    summary_tokens: int = 0
    """Tokens for a summary of the dropped messages. 0 if there is to be none."""


NO_COMPACTION = Compaction()


def compaction(conversation: Conversation, strategy: ContextStrategy, token_budget: int) -> Compaction:
    """Return the compaction that fits the messages into `token_budget` and the payload limit.

    The payload limit applies to every strategy: a larger conversation could not be carried to the next segment.
    """
    if is_within_budget(conversation, token_budget):
        return NO_COMPACTION
    if strategy == "observation_masking":
        return _masking_compaction(conversation, token_budget)
    if strategy == "anchored_summary":
        return _summary_compaction(conversation, token_budget)
    return Compaction(drop=messages_to_drop(conversation, _NO_TOKEN_LIMIT if strategy == "none" else token_budget))


def _masking_compaction(conversation: Conversation, token_budget: int) -> Compaction:
    """Mask old results. If that is not enough, drop the oldest messages too."""
    mask = results_to_mask(conversation)
    smaller = with_messages(conversation, with_masks(conversation.messages, mask))
    drop = messages_to_drop(smaller, token_budget)
    return Compaction(drop, ranges_of(range_indexes(mask) - range_indexes(drop)))


def _summary_compaction(conversation: Conversation, token_budget: int) -> Compaction:
    """Summarise what `sliding_window` would drop, and a little more to make room for the summary.

    Nothing is dropped if the summary could be as long as the messages that it replaces. Earlier summaries do not count.
    """
    limit = summary_tokens(token_budget)
    reserve = reserved_tokens(limit)
    drop = messages_to_drop(conversation, token_budget, reserve)
    replaced = tuple(message for message in messages_within(conversation.messages, drop) if not message.summary)
    is_shorter = estimated_message_tokens(replaced) > reserve
    return Compaction(drop, summary_tokens=limit) if is_shorter else NO_COMPACTION


def compaction_data(context: ContextRef) -> dict[str, Any] | None:
    """Return the data of `ContextCompacted` for a model call, or None if nothing was compacted."""
    if not context.drop and not context.mask:
        return None
    strategy: ContextStrategy = "observation_masking" if context.mask else "sliding_window"
    if context.summary is not None:
        strategy = "anchored_summary"
    data: dict[str, Any] = {"strategy": strategy, "messages_dropped": ranges_length(context.drop)}
    if context.mask:
        data["messages_masked"] = ranges_length(context.mask)
    if context.summary is not None:
        data["summary"] = "fallback" if context.summary.summary is None else "model"
    return data
