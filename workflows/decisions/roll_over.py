"""When a run continues as new, before the server would have to suggest it, and what it carries."""

from workflows.decisions.conversation import settled
from workflows.types.context import Setup
from workflows.types.state import AgentState

MAX_CARRIED_BYTES = 1_900_000
"""Of the state as JSON; the server refuses a payload of 2 MB."""


def is_due(state: AgentState, setup: Setup, events: int, history_bytes: int, suggested: bool) -> bool:
    """Return whether to continue as new at the end of this iteration.

    A state too large for one payload waits for the window to shrink its conversation, an iteration later. So does one
    with delegates, which take back what they did behind an interrupted call: the next run would not hear of their end.
    """
    if state.stop is not None or state.aborted is not None or state.children:
        return False
    is_long = suggested or events >= setup.roll_over_events or history_bytes >= setup.roll_over_bytes
    return is_long and len(carried(state, "").model_dump_json(exclude_unset=True).encode()) <= MAX_CARRIED_BYTES


def carried(state: AgentState, run_id: str) -> AgentState:
    """Return the state for the next run of the chain: no reference may point into the history that ends."""
    return state.model_copy(update={"conversation": settled(state.conversation), "carried_by": run_id})
