"""Which tool results lose their text when the conversation outgrows its budget (`observation_masking`)."""

from workflows.decisions.window import latest_group
from workflows.types.masked import masked
from workflows.types.ranges import Ranges, ranges_of
from workflows.types.state import Conversation

UNTOUCHED = 6
"""The latest messages keep their text."""


def results_to_mask(conversation: Conversation) -> Ranges:
    """Return the results whose text goes: all that are older than the latest messages and get shorter by it.

    What the model has not seen, and its last message with the results of it, keep their text however many they are.
    """
    messages, sent = conversation.messages, conversation.sent
    end = min(len(messages) - UNTOUCHED, latest_group(messages[:sent]))
    return ranges_of(i for i, m in enumerate(messages[: max(end, 0)]) if not m.pinned and masked(m) is not m)
