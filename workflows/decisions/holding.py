"""Delegates that a person holds up: while one is, the clock of the run that waits for it stands still as well."""

from datetime import datetime

from workflows.decisions.clock import with_clock_updated
from workflows.types.state import AgentState


def is_held(state: AgentState) -> bool:
    """Return whether a person holds the run up, or one of its delegates."""
    return state.clock.stopped_at is not None


def told_parent(state: AgentState, held: bool) -> AgentState:
    """Return the state whose parent was told so."""
    return state.model_copy(update={"told_held": held})


def with_delegate_held(state: AgentState, arguments: tuple[object, ...], now: datetime) -> AgentState:
    """Take in what a delegate says of itself: its workflow id, and whether it is held up; others say nothing here."""
    if len(arguments) != 2 or not isinstance(arguments[1], bool):
        return state
    child_id, held = arguments
    children = tuple(
        child.model_copy(update={"held": held}) if child.workflow_id == child_id else child for child in state.children
    )
    return with_clock_updated(state.model_copy(update={"children": children}), now)
