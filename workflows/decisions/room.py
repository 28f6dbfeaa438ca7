"""How much of what an iteration brings the model is shown: the context budget, shared among the results."""

from workflows.decisions.calibration import message_budget
from workflows.decisions.conversation import MAX_NEWS_BYTES
from workflows.decisions.estimate import bytes_for, size_of
from workflows.types.messages import Message
from workflows.types.state import AgentState

LEAST_ROOM_BYTES = 4_000
"""Of what is new, however small the budget is, and however much of it instructions, tools and the task take."""


def news_room(state: AgentState) -> int:
    """Return the bytes that the model may be shown of what is new: what the budget leaves beside what never goes."""
    if state.config.context_strategy == "none":
        return MAX_NEWS_BYTES
    messages, sent = state.conversation.messages, state.conversation.sent
    stays = [*messages[:1], *[m for m in messages[1:sent] if m.pinned], *messages[max(sent, 1) :]]
    return min(max(bytes_for(message_budget(state)) - sum(map(size_of, stays)), LEAST_ROOM_BYTES), MAX_NEWS_BYTES)


def room_beside(reply: Message, room: int) -> int:
    """Return the bytes of `room` that are left for the results of a reply's calls."""
    return max(room - size_of(reply), LEAST_ROOM_BYTES)
