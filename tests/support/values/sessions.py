"""Sessions, and messages to them."""

from typing import Any

from orga.workflows.decisions.sessions.messages import with_sent_message
from orga.workflows.decisions.sessions.turns import initial_session_state, with_turn_begun
from orga.workflows.types.control import Stop
from orga.workflows.types.sessions.session import SessionState
from orga.workflows.types.sessions.session_input import SessionInput, SessionMessage, WhenBusy
from tests.support.values.core import T0, at

DONE = Stop("completed")


def a_session(**given: Any) -> SessionState:
    return initial_session_state(SessionInput(**given), "origin", T0)


def says(text: str = "hello", when_busy: WhenBusy = "enqueue", message_id: str = "") -> SessionMessage:
    return SessionMessage(text=text, message_id=message_id or f"id-{text[:20]}".replace(" ", "-"), when_busy=when_busy)


def session_in_turn(state: SessionState, text: str = "hello", seconds: int = 0) -> SessionState:
    return with_turn_begun(with_sent_message(state, says(text)), at(seconds))
