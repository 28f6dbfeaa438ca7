"""The run's clock: it stands still while the run is paused or waits for a person."""

from datetime import datetime

from workflows.types.state import AgentState


def ticking(state: AgentState, now: datetime) -> AgentState:
    """Return the state with its clock stopped or going, as its pause and its waits say."""
    is_held = state.paused or any(wait.resolution is None for wait in state.waits)
    clock = state.clock
    if is_held == (clock.stopped_at is not None):
        return state
    if clock.stopped_at is None:
        return state.model_copy(update={"clock": clock.model_copy(update={"stopped_at": now})})
    stopped_s = clock.stopped_s + (now - clock.stopped_at).total_seconds()
    going = clock.model_copy(update={"stopped_at": None, "stopped_s": stopped_s})
    return state.model_copy(update={"clock": going})
