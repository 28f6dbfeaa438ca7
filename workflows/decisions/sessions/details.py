"""The public views of a session: details, result and status, with totals over its turns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from orga.workflows.decisions.result import agent_result, agent_status, with_all_keys
from orga.workflows.decisions.result import agent_run_details as run_details
from orga.workflows.types.control import Stop
from orga.workflows.types.sessions.result import SessionResult, SessionStatus
from orga.workflows.types.sessions.session import SessionState


def session_details(state: SessionState, waits: Sequence[str] = ()) -> str:
    """Return the current details of a session in Markdown: those of an agent's run, and its turns."""
    session = state.session
    lines = [f"- turn: {session.turn or 'none'} of {session.accepted}"]
    if session.queue:
        lines.append(f"- messages that wait: {len(session.queue)}")
    return "\n".join([run_details(state, waits), *lines])


def session_result(state: SessionState, stop: Stop, now: datetime) -> SessionResult:
    session = state.session
    own = {
        "usage": state.total_usage,
        "tool_calls": state.total_calls,
        "duration_s": session.duration_s,
        "turns": session.begun,
        "latest": session.results,
    }
    return with_all_keys(SessionResult.model_validate({**dict(agent_result(state, stop, now)), **own}))


def session_status(state: SessionState, now: datetime) -> SessionStatus:
    session = state.session
    own = {
        "usage": state.total_usage,
        "tool_calls": state.total_calls,
        "turn": session.turn,
        "turns": session.accepted,
        "queued": len(session.queue),
        "turn_usage": state.usage,
        "closing": session.closing,
    }
    return with_all_keys(SessionStatus.model_validate({**dict(agent_status(state, now)), **own}))
