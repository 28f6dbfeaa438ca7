"""A run that was set back: what it leaves out of its clock, and what it is told."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from pydantic import ValidationError

from orga.workflows.decisions.control.interventions import guidance, with_guidance
from orga.workflows.types.control import Control, Intervention, Rewind
from orga.workflows.types.untrusted import delimited

S = TypeVar("S", bound=Control)


def rewind_in(raw: object) -> Rewind | None:
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
    return state.with_control(clock=state.clock.with_left_out(left_out_s), aborted=None, stop=None)


def with_guidance_of(state: S, rewind: Rewind) -> S:
    """Return the state with what a rewind says to the model in the inbox, if it says anything."""
    if rewind.left:
        state = with_guidance(state, Intervention(kind="add_context", text=left_text(rewind.left)))
    steer = guidance("steer", (rewind.steer,))
    return with_guidance(state, steer) if steer.text.strip() else state


def left_text(left: Sequence[str]) -> str:
    """Return what the model is told of calls that it does not remember; their arguments are data."""
    lines = delimited("\n".join(left), "calls that were carried out")
    return f"This run was set back. It had carried out these calls already, and nothing undoes them:\n{lines}"
