"""Compaction: the strategies of `context_strategy` for a conversation that exceeds its budget."""

from collections import Counter
from collections.abc import Sequence
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

_KEPT_BYTES = MAX_CONVERSATION_BYTES * KEEP_SHARE


def messages_to_drop(conversation: Conversation, token_budget: int, reserve: int = 0) -> Ranges:
    """Return the ranges of messages to drop, oldest first. Empty while the conversation fits.

    A call and its results go together. These stay: the task, the beginning of the current turn, pinned messages, and
    everything from the model's last message on. If pinned messages alone exceed the budget or the payload, the oldest
    of them go too, but never the task. If the model has replied since, what it saw last goes only if the rest would
    not fit. `reserve` tokens are freed in addition.
    """
    if is_within_budget(conversation, token_budget):
        return ()
    groups = _droppable_groups(conversation)
    left, dropped = _Size(conversation.size, conversation.tokens), set[int]()
    seen_last = latest_group(conversation.messages[: conversation.sent])
    for group in groups.first:
        if left.is_within(_KEPT_BYTES, token_budget * KEEP_SHARE - reserve):
            break
        if group.start >= seen_last and left.is_within(MAX_CONVERSATION_BYTES, token_budget - reserve):
            break  # dropping what the model saw last only saves room for later
        left = left.without(conversation.messages[group.start : group.stop])
        dropped.update(group)
    return ranges_of(dropped | _pinned_to_drop(conversation, groups.last, token_budget, left.bytes))


def _pinned_to_drop(
    conversation: Conversation, groups: Sequence[range], token_budget: int, bytes_left: int
) -> set[int]:
    """Return the pinned messages to drop, the oldest first. `bytes_left` are those of all messages left so far."""
    messages, turn_start = conversation.messages, latest_turn(conversation.messages).start
    pinned = [group.start for group in groups if group.start != turn_start]
    left = _Size(bytes_left, estimated_message_tokens(tuple(messages[index] for index in pinned)))
    dropped = set[int]()
    if left.is_within(MAX_CONVERSATION_BYTES, token_budget):
        return dropped
    for index in pinned:
        if left.is_within(_KEPT_BYTES, token_budget):
            break
        left = left.without((messages[index],))
        dropped.add(index)
    return dropped


class _Size(NamedTuple):
    bytes: int
    tokens: int

    def is_within(self, max_bytes: float, max_tokens: float) -> bool:
        return self.bytes <= max_bytes and self.tokens <= max_tokens

    def without(self, messages: tuple[Message, ...]) -> "_Size":
        sizes = [message_size(message) for message in messages]
        return _Size(self.bytes - sum(sizes), self.tokens - sum(map(estimated_tokens, sizes)))


def latest_group(messages: tuple[Message, ...]) -> int:
    """Return the index of the model's last message, where the last group starts.

    All messages after it belong to that group. After continue-as-new the model may not have seen them yet.
    """
    return max((i for i, message in enumerate(messages) if message.role == "assistant"), default=len(messages))


def groups_after_task(messages: tuple[Message, ...]) -> list[range]:
    """Return the indexes of each group. A group is a message and its tool results. The task belongs to none."""
    starts = [index for index, message in enumerate(messages) if message.role != "tool"]
    groups = [range(start, stop) for start, stop in pairwise([*starts, len(messages)])]
    return groups[1:] if messages and must_keep_first(messages) else groups


class _DroppableGroups(NamedTuple):
    first: list[range]
    last: list[range]
    """Groups that are dropped only after the others: pinned messages, and the beginning of the current turn."""


def _droppable_groups(conversation: Conversation) -> _DroppableGroups:
    """Return the groups that may go. The one that the model saw last may go only if the model has replied since."""
    messages, sent = conversation.messages[: conversation.sent], conversation.sent
    groups = groups_after_task(messages)
    has_replied = any(message.role == "assistant" for message in conversation.messages[sent:])
    if not has_replied:
        latest = latest_group(messages)
        groups = [group for group in groups[:-1] if group.start < latest]
    turn = latest_turn(conversation.messages)
    droppable = _DroppableGroups([], [])
    for group in groups:
        (droppable.last if is_dropped_last(messages, group.start, turn) else droppable.first).append(group)
    return droppable


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
    """Return the state with a ready summary of `drop`, and its cost. A fallback replaces a missing or blank reply."""
    if reply is not None and reply.text.strip():
        ready = Summary(drop=drop, text=reply.text, call=f"{state.iteration + 1}.{SUMMARY_CALL}")
    else:
        replaced = messages_within(state.conversation.messages, drop)
        ready = Summary(drop=drop, text=fallback_summary(replaced, limit * BYTES_PER_TOKEN))
    state = state.with_dialogue(conversation=state.conversation.with_fields(ready=ready))
    return state if reply is None else state.with_usage_of(reply)


def ready_summary(conversation: Conversation, drop: Ranges) -> Summary | None:
    """Return the ready summary if it is about exactly these messages. It is ready until a model call uses it."""
    ready = conversation.ready
    return ready if ready is not None and ready.drop == drop else None


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
    max_tokens = _NO_TOKEN_LIMIT if strategy == "none" else token_budget
    return Compaction(drop=messages_to_drop(conversation, max_tokens))


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
    data: dict[str, Any] = {"strategy": "sliding_window", "messages_dropped": ranges_length(context.drop)}
    if context.mask:
        data |= {"strategy": "observation_masking", "messages_masked": ranges_length(context.mask)}
    if context.summary is not None:
        source = "fallback" if context.summary.summary is None else "model"
        data |= {"strategy": "anchored_summary", "summary": source}
    return data
