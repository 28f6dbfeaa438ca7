"""What bounds and steers any run: guidance, pause and abort, its time and its history's length, rewinds.

Signals are recorded when they arrive; the workflow takes them in, in order, when it comes to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from orga.workflows.types.control import Control, Intervention, InterventionKind, Rewind
from orga.workflows.types.text import clean_text, clip, delimited_text

S = TypeVar("S", bound=Control)

MAX_SIGNAL_BYTES = 50_000
"""A longer text is cut: guidance belongs into a sentence, documents into files."""

MAX_INBOX_BYTES = 100_000
"""All that waits in the inbox: it has to fit into one payload. What arrives beyond it is cut to a line."""

MAX_INBOX_ITEMS = 400
"""What arrives beyond it is counted, and the model is told how much that was."""

MIN_SIGNAL_BYTES = 200

_CONTROLS = [chr(code) for code in range(32) if chr(code) not in "\n\r\t"]
"""Control characters, which take six times their room in a payload and could command a terminal."""


def signal_text(arguments: tuple[object, ...]) -> str:
    """Return what a signal says, cut where it is too long."""
    return _clipped_text(_joined_text(arguments), MAX_SIGNAL_BYTES)


def guidance(kind: InterventionKind, arguments: tuple[object, ...]) -> Intervention:
    """Return what a signal says as guidance."""
    said = _joined_text(arguments)
    text = _clipped_text(said, MAX_SIGNAL_BYTES)
    return Intervention(kind=kind, text=text, size=0 if text == said else len(said.encode()))


def _joined_text(arguments: tuple[object, ...]) -> str:
    """Return the text; any JSON is taken, since a handler that refuses would lose it."""
    parts = [part if isinstance(part, str) else _part_text(part) for part in arguments if part is not None]
    text = clean_text("\n".join(parts))
    for control in _CONTROLS:  # `translate` takes 50 times as long, of all signals since the last task
        text = text.replace(control, " ")
    return text


def _part_text(part: object) -> str:
    return to_json(part, fallback=str, inf_nan_mode="strings", bytes_mode="base64").decode()


def _clipped_text(text: str, max_bytes: int) -> str:
    return clip(text, max_bytes, "signals are cut; put documents into files")


def with_guidance(state: S, guidance: Intervention) -> S:
    """Record guidance (steer, add_context) at the end of the inbox; one that is full only counts it.

    The journal tells of guidance that was cut.
    """
    if len(state.inbox) >= MAX_INBOX_ITEMS:
        return state.with_control(unheard=state.unheard + 1)
    text = _clipped_text(guidance.text, max(MAX_INBOX_BYTES - state.inbox_bytes, MIN_SIGNAL_BYTES))
    kept, size = len(text.encode()), guidance.size
    if text != guidance.text:
        size = size or len(guidance.text.encode())
    inbox = (*state.inbox, guidance.with_cut(text, size) if size else guidance)
    state = state.with_control(inbox=inbox, inbox_bytes=state.inbox_bytes + kept)
    if not size:
        return state
    return state.with_note("InterventionReceived", kind="cut", of=guidance.kind, bytes=size, kept=kept)


def within_inbox(items: tuple[Intervention, ...]) -> tuple[tuple[Intervention, ...], int]:
    """Return what one inbox holds of these, in order, and how many are too many; the journal was told of each."""
    kept, size = list[Intervention](), 0
    for item in items[:MAX_INBOX_ITEMS]:
        text = _clipped_text(item.text, max(MAX_INBOX_BYTES - size, MIN_SIGNAL_BYTES))
        kept.append(item if text == item.text else item.with_cut(text, item.size or len(item.text.encode())))
        size += len(text.encode())
    return tuple(kept), max(len(items) - MAX_INBOX_ITEMS, 0)


def with_pause(state: S, now: datetime) -> S:
    """Stop the clock; a second pause changes nothing."""
    return state if state.paused else state.with_control(paused=True).with_clock_updated(now)


def with_resume(state: S, now: datetime) -> S:
    """Let the clock go on; a resume without a pause changes nothing."""
    return state.with_control(paused=False).with_clock_updated(now) if state.paused else state


def with_abort(state: S, why: str) -> S:
    """Record the abort; the first reason stays."""
    if state.aborted is not None:
        return state
    return state.with_control(aborted=why or "aborted by the operator")


def with_run_over(state: S) -> S:
    """Return the state of a run that is ending: from here on nobody decides anything."""
    return state.with_control(is_over=True)


def with_reopened_end(state: S) -> S:
    """Return the state that goes on where guidance came after the answer, while people were told of the end."""
    is_answered = state.stop is not None and state.stop[0] == "completed" and state.aborted is None
    return state.with_control(stop=None, is_over=False) if is_answered and state.inbox else state


def remaining_s(state: Control, now: datetime) -> float:
    """Return the seconds left on the run's clock, never below 0."""
    return max(state.timeout_s - state.clock.elapsed_s(now), 0.0)


def out_of_time(state: S) -> S:
    """Return the state of a run whose time is up."""
    return state.with_control(stop=("timeout", f"limit of {state.timeout_s:g} s"))


def should_continue_as_new(state: Control, events: int, history_bytes: int, suggested: bool) -> bool:
    """Return whether the history has grown enough, and the run could leave it behind."""
    if state.stop is not None or state.aborted is not None or state.under_way_elsewhere:
        return False
    terms = state.terms
    return suggested or events >= terms.roll_over_events or history_bytes >= terms.roll_over_bytes


def is_history_full(state: Control, events: int, history_bytes: int) -> bool:
    """Return whether the history is so long that the server will soon end the run without a result."""
    terms = state.terms
    return events >= terms.full_events or history_bytes >= terms.full_bytes


def with_end_at_full_history(state: S, events: int, history_bytes: int) -> S:
    """End a run that could not continue as new in time: it waited all along, or has too much to carry."""
    if state.stop is not None:
        return state
    has_waited = state.under_way_elsewhere or state.questions or state.paused
    why = state.why_it_stayed if has_waited else "its state was too large to be carried on"
    detail = f"the history is full, some {events} events and {history_bytes} bytes: the run could not continue as new"
    return state.with_control(stop=("error", f"{detail}, since {why}"))


def parse_rewind(raw: object) -> Rewind | None:
    """Return what a signal asks for; None for anything else."""
    try:
        return Rewind.model_validate(raw)
    except ValidationError:
        return None


def with_rewind(state: S, rewind: Rewind, since: datetime, now: datetime) -> S:
    """Return the state to go on from: time since the boundary left out, no ending decided.

    An abort that was delivered again is taken back, since it would end the run where it ended before.

    Args:
        state: Behind all that the server delivered again.
        rewind: Whose boundary counts only as far as it can be true.
        since: The time of the last event that the reset has kept; the boundary cannot be before it.
        now: The time of the first task behind the reset.
    """
    boundary = min(max(rewind.boundary_at, since), now)
    until = state.clock.stopped_at or now
    left_out_s = max((until - boundary).total_seconds(), 0.0)
    return state.with_control(clock=state.clock.with_left_out(left_out_s), aborted=None, stop=None, is_over=False)


def with_rewind_guidance(state: S, rewind: Rewind) -> S:
    """Return the state with what a rewind says to the model in the inbox, if it says anything."""
    if rewind.left:
        state = with_guidance(state, Intervention(kind="add_context", text=forgotten_calls_text(rewind.left)))
    steer = guidance("steer", (rewind.steer,))
    return with_guidance(state, steer) if steer.text.strip() else state


def forgotten_calls_text(left: Sequence[str]) -> str:
    """Return what the model is told of calls that it does not remember; their arguments are data."""
    lines = delimited_text("\n".join(left), "calls that were carried out")
    return f"This run was set back. It had carried out these calls already, and nothing undoes them:\n{lines}"
