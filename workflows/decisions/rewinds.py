"""A run that was set back goes on as if no time had passed since."""

from datetime import datetime

from pydantic import ValidationError

from workflows.decisions.interventions import signal_text, with_guidance
from workflows.types.rewind import Rewind, Rewound
from workflows.types.state import AgentState, Intervention


def with_rewind(state: AgentState, raw: object, now: datetime) -> AgentState:
    """Return the state to go on from: time since the boundary left out, no ending decided, guidance in the inbox.

    An abort that was delivered again is taken back, since it would end the run where it ended before. Anything that is
    no `Rewind` changes nothing.
    """
    try:
        rewind = Rewind.model_validate(raw)
    except ValidationError:
        return state
    rewound = Rewound(at=now, stopped_s=_stopped_before(state, now))
    boundary = min(max(rewind.boundary_at, state.clock.started_at), now)
    clock = state.clock.model_copy(update={"stopped_s": rewound.stopped_s + (now - boundary).total_seconds()})
    state = state.model_copy(update={"clock": clock, "rewound": rewound, "aborted": None, "stop": None})
    guidance = signal_text((rewind.steer,))
    return with_guidance(state, Intervention(kind="steer", text=guidance)) if guidance.strip() else state


def _stopped_before(state: AgentState, now: datetime) -> float:
    """Return the time that was left out before; a rewind delivered again by the next one is no second one."""
    again = state.rewound is not None and state.rewound.at == now
    return state.rewound.stopped_s if again and state.rewound else state.clock.stopped_s
