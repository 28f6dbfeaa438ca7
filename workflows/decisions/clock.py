"""The run's clock: it stands still while the run, or a delegate of its, is paused or waits for a person."""

from datetime import datetime

from workflows.types.state import AgentState


def with_clock_updated(state: AgentState, now: datetime) -> AgentState:
    """Return the state with its clock stopped or going, as its pause and its waits say."""
    is_asking = any(wait.resolution is None for wait in state.waits)
    is_held = state.paused or is_asking or any(child.held for child in state.children)
    clock = state.clock
    if is_held == (clock.stopped_at is not None):
        return state
    if clock.stopped_at is None:
        return state.model_copy(update={"clock": clock.model_copy(update={"stopped_at": now})})
    stopped_s = clock.stopped_s + (now - clock.stopped_at).total_seconds()
    going = clock.model_copy(update={"stopped_at": None, "stopped_s": stopped_s})
    return state.model_copy(update={"clock": going})
