"""The first state of a session: from what its starter sent, or from what the run before it carried."""

from __future__ import annotations

from datetime import datetime

from orga.workflows.decisions.begin import carried_state, is_fork
from orga.workflows.types.control import Clock
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.sessions.input import SessionInput, parse_session
from orga.workflows.types.sessions.session import SessionState


def opened(given: SessionInput, origin: str, now: datetime) -> SessionState:
    """Return the state of a session in which nothing was said yet: its clock stands still."""
    clock = Clock(started_at=now).with_stopped_at(now)
    state = SessionState(input=given.for_agent(), origin=origin, clock=clock)
    return state if given.idle_timeout_s is None else state.with_idle_timeout(given.idle_timeout_s)


def first_session(raw: object, given: object, before: str | None, origin: str, now: datetime) -> SessionState:
    """Return the state to start from; one that is given counts where the run `before` carried it.

    Raises:
        InvalidInput: With every problem, each naming its key.
        NewerState: It was carried by a run of a version that knows more.
    """
    if given is not None and before:
        return carried_state(SessionState, given, before)
    if is_fork(raw):
        raise InvalidInput("fork: a session cannot be a fork; fork a run of an agent, or start a session")
    return opened(parse_session(raw), origin, now)
