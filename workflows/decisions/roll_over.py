"""When a run continues as new, before the server would have to suggest it, and when it is too long to go on at all."""

from workflows.decisions.carrying import MAX_CARRIED_BYTES, carried, weight
from workflows.types.context import Setup
from workflows.types.state import AgentState


def is_due(state: AgentState, setup: Setup, events: int, history_bytes: int, suggested: bool) -> bool:
    """Return whether to continue as new at the end of this iteration.

    A run with delegates waits for them, which take back what they did behind an interrupted call: the next run would
    not hear of their end. An answer that is being continued and too long to be carried is finished first.
    """
    if state.stop is not None or state.aborted is not None or state.children:
        return False
    is_long = suggested or events >= setup.roll_over_events or history_bytes >= setup.roll_over_bytes
    return is_long and weight(carried(state, "")) <= MAX_CARRIED_BYTES


def is_full(setup: Setup, events: int, history_bytes: int) -> bool:
    """Return whether the history is so long that the server will soon end the run without a result."""
    return events >= setup.full_events or history_bytes >= setup.full_bytes


def with_full_history(state: AgentState, events: int, history_bytes: int) -> AgentState:
    """End a run that could not continue as new in time: it waited all along for delegates, or for people."""
    if state.stop is not None:
        return state
    why = "its delegates were at work" if state.children else "it waited in the middle of its calls"
    if not state.children and not state.waits and not state.paused:
        why = "its state was too large to be carried on"
    detail = f"the history is full, some {events} events and {history_bytes} bytes: the run could not continue as new"
    return state.model_copy(update={"stop": ("error", f"{detail}, since {why}")})
