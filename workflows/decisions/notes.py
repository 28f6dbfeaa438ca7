"""Notes for the journal: appended to the state, flushed into the history by the workflow."""

from typing import Any

from workflows.types.notes import Note
from workflows.types.state import AgentState

MAX_TEXT_CHARS = 300


def with_note(state: AgentState, event: str, **data: Any) -> AgentState:
    """Return the state with one more note; long texts are cut."""
    return state.model_copy(update={"notes": (*state.notes, Note(event=event, data=_short(data)))})


def _short(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value[:MAX_TEXT_CHARS] if isinstance(value, str) else value for key, value in data.items()}
