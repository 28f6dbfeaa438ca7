"""What any run does by itself: it notes what it decided, for the journal, and its clock stands still with people."""

from datetime import datetime
from typing import Any

from orga.workflows.types.journal import Note
from orga.workflows.types.state import AgentState

MAX_TEXT_CHARS = 300


def with_note(state: AgentState, event: str, **data: Any) -> AgentState:
    """Return the state with one more note; long texts are cut."""
    return state.with_control(notes=(*state.notes, Note(event=event, data=_short(data))))


def _short(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value[:MAX_TEXT_CHARS] if isinstance(value, str) else value for key, value in data.items()}


def with_clock_updated(state: AgentState, now: datetime) -> AgentState:
    """Return the state with its clock stopped or going, as its pause and its waits say."""
    is_asking = any(wait.resolution is None for wait in state.waits)
    is_held = state.paused or is_asking or any(child.held for child in state.children)
    clock = state.clock
    if is_held == (clock.stopped_at is not None):
        return state
    if clock.stopped_at is None:
        return state.with_control(clock=clock.with_stopped_at(now))
    return state.with_control(clock=clock.with_resumed_at(now))
