"""What is done to a conversation that outgrew its budget: the strategies of `context_strategy`."""

from dataclasses import dataclass
from typing import Any

from workflows.decisions.conversation import with_messages
from workflows.decisions.estimate import tokens_in
from workflows.decisions.masking import results_to_mask
from workflows.decisions.summary import reserved_tokens, summary_tokens
from workflows.decisions.window import fits, messages_to_drop
from workflows.types.context import ContextRef
from workflows.types.input import ContextStrategy
from workflows.types.ranges import Ranges, indexes, length, ranges_of, with_masks, within
from workflows.types.state import Conversation

NO_LIMIT = 10**12


@dataclass(frozen=True)
class Compaction:
    """What goes, by ranges of messages."""

    drop: Ranges = ()
    mask: Ranges = ()
    summary_tokens: int = 0
    """What a summary of the dropped messages may take; 0 where none is wanted."""


NOTHING = Compaction()


def compaction(conversation: Conversation, strategy: ContextStrategy, token_budget: int) -> Compaction:
    """Return what goes so that the messages are within `token_budget` and the payload limit; nothing where they fit.

    The payload limit holds for every strategy: a conversation above it could not be carried to the next run.
    """
    if fits(conversation, token_budget):
        return NOTHING
    if strategy == "observation_masking":
        return _masking(conversation, token_budget)
    if strategy == "anchored_summary":
        return _summary(conversation, token_budget)
    return Compaction(drop=messages_to_drop(conversation, NO_LIMIT if strategy == "none" else token_budget))


def _masking(conversation: Conversation, token_budget: int) -> Compaction:
    """Mask old results; where that is not enough, the oldest messages go as well."""
    mask = results_to_mask(conversation)
    smaller = with_messages(conversation, with_masks(conversation.messages, mask))
    drop = messages_to_drop(smaller, token_budget)
    return Compaction(drop, ranges_of(indexes(mask) - indexes(drop)))


def _summary(conversation: Conversation, token_budget: int) -> Compaction:
    """Sum up what the window would drop, and a little more to have room for the summary.

    Nothing goes where the summary could be as long as what it stands for, beside the summary that it replaces.
    """
    limit = summary_tokens(token_budget)
    reserve = reserved_tokens(limit)
    drop = messages_to_drop(conversation, token_budget, reserve)
    news = tuple(message for message in within(conversation.messages, drop) if not message.summary)
    return Compaction(drop, summary_tokens=limit) if tokens_in(news) > reserve else NOTHING


def compaction_data(context: ContextRef) -> dict[str, Any] | None:
    """Return what `ContextCompacted` tells of a model call, or None where nothing went."""
    if not context.drop and not context.mask:
        return None
    strategy: ContextStrategy = "observation_masking" if context.mask else "sliding_window"
    if context.summary is not None:
        strategy = "anchored_summary"
    data: dict[str, Any] = {"strategy": strategy, "messages_dropped": length(context.drop)}
    if context.mask:
        data["messages_masked"] = length(context.mask)
    if context.summary is not None:
        data["summary"] = "fallback" if context.summary.summary is None else "model"
    return data
