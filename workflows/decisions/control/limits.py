"""What bounds any run: the time that its people gave it, and the history that the server keeps of it."""

from datetime import datetime
from typing import TypeVar

from orga.workflows.types.control import Control

S = TypeVar("S", bound=Control)


def remaining_s(state: Control, now: datetime) -> float:
    """Return the seconds left on the run's clock, never below 0."""
    return max(state.terms.timeout_s - state.clock.elapsed_s(now), 0.0)


def out_of_time(state: S) -> S:
    """Return the state of a run whose time is up."""
    return state.with_control(stop=("timeout", f"limit of {state.terms.timeout_s:g} s"))


def is_time_to_roll_over(state: Control, events: int, history_bytes: int, suggested: bool) -> bool:
    """Return whether the history has grown enough, and the run could leave it behind."""
    if state.stop is not None or state.aborted is not None or state.is_waited_for:
        return False
    terms = state.terms
    return suggested or events >= terms.roll_over_events or history_bytes >= terms.roll_over_bytes


def is_full(state: Control, events: int, history_bytes: int) -> bool:
    """Return whether the history is so long that the server will soon end the run without a result."""
    terms = state.terms
    return events >= terms.full_events or history_bytes >= terms.full_bytes


def with_full_history(state: S, events: int, history_bytes: int) -> S:
    """End a run that could not continue as new in time: it waited all along for delegates, or for people."""
    if state.stop is not None:
        return state
    why = state.is_waited_for or "it waited in the middle of its calls"
    if not (state.is_waited_for or state.questions or state.paused):
        why = "its state was too large to be carried on"
    detail = f"the history is full, some {events} events and {history_bytes} bytes: the run could not continue as new"
    return state.with_control(stop=("error", f"{detail}, since {why}"))
