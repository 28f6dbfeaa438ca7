"""Waits for a person: asked, decided once, closed. While one is open the run's clock stands still."""

from datetime import datetime

from orga.workflows.decisions.control import with_clock_updated, with_note
from orga.workflows.types.input import parsed
from orga.workflows.types.questions import Resolution, Wait
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clean_text

MAX_RESULT_BYTES = 100_000
MAX_REASON_CHARS = 2_000

_LONG = frozenset({"result", "reason"})


def opened(state: AgentState, wait: Wait, now: datetime) -> AgentState:
    """Return the state that waits for an answer to one more question."""
    asked = state.with_control(waits=(*state.waits, wait))
    asked = with_note(
        asked, "ApprovalRequested", kind=wait.kind, id=wait.wait_id, question=wait.question, queue=wait.queue
    )
    return with_clock_updated(asked, now)


def with_resolution(state: AgentState, resolution: Resolution, now: datetime) -> AgentState:
    """Record a person's decision; the first one stays."""
    waits = tuple(
        wait.with_resolution(resolution)
        if wait.wait_id == resolution.escalation_id and wait.resolution is None
        else wait
        for wait in state.waits
    )
    return with_clock_updated(state.with_control(waits=waits), now)


def closed(state: AgentState, wait_id: str, now: datetime) -> AgentState:
    """Return the state without the wait, its decision noted."""
    wait = wait_named(state, wait_id)
    if wait is None:
        return state
    rest = state.with_control(waits=tuple(other for other in state.waits if other.wait_id != wait_id))
    decision = wait.resolution
    told = {"choice": decision.choice, "by": decision.by, "reason": decision.reason} if decision else {"choice": "none"}
    return with_clock_updated(with_note(rest, "ApprovalResolved", kind=wait.kind, id=wait_id, **told), now)


def wait_named(state: AgentState, wait_id: str) -> Wait | None:
    """Return the wait with this id, decided or not."""
    return next((wait for wait in state.waits if wait.wait_id == wait_id), None)


def parsed_resolution(state: AgentState, raw: object) -> Resolution:
    """Check a person's decision against what waits for one.

    Raises:
        ValueError: It names nothing that waits, comes too late, or is not one of the choices.
    """
    resolution = parsed(Resolution, raw, long=_LONG)
    wait = wait_named(state, resolution.escalation_id)
    if wait is None:
        waiting = ", ".join(wait.wait_id for wait in state.waits) or "nothing"
        raise ValueError(f"no escalation {resolution.escalation_id!r} waits here; waiting: {waiting}")
    if wait.resolution is not None:
        raise ValueError(f"{resolution.escalation_id} is decided already: {wait.resolution.choice}")
    if wait.kind == "approval":
        raise ValueError("held calls are decided one by one, by the updates approve and deny")
    if wait.kind == "budget" and resolution.choice not in {"skip", "abort"}:
        raise ValueError("a budget is raised by extend_budget; or choose skip (end at the limit) or abort")
    if len(resolution.reason) > MAX_REASON_CHARS:
        raise ValueError(f"reason: must not be longer than {MAX_REASON_CHARS:,} characters")
    if len(resolution.result.encode()) > MAX_RESULT_BYTES:
        raise ValueError(f"result: must not be longer than {MAX_RESULT_BYTES} bytes")
    return resolution.with_result(clean_text(resolution.result))
