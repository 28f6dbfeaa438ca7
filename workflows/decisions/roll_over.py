"""When a run continues as new, before the server would have to suggest it, and what it carries."""

from workflows.decisions.conversation import settled
from workflows.decisions.window import MAX_CONVERSATION_BYTES
from workflows.types.context import Setup
from workflows.types.state import AgentState


def is_due(state: AgentState, setup: Setup, events: int, history_bytes: int, suggested: bool) -> bool:
    """Return whether to continue as new at the end of this iteration.

    A conversation too large for one payload waits for the window to shrink it, an iteration later.
    """
    if state.stop is not None or state.conversation.size > MAX_CONVERSATION_BYTES:
        return False
    return suggested or events >= setup.roll_over_events or history_bytes >= setup.roll_over_bytes


def carried(state: AgentState) -> AgentState:
    """Return the state for the next run of the chain: no reference may point into the history that ends."""
    return state.model_copy(update={"conversation": settled(state.conversation)})
