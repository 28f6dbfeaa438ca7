"""Progress: what the outcomes of an iteration say about the steps that they are attempts of."""

from datetime import datetime

from workflows.decisions.steps import with_failed_call, with_succeeded_call
from workflows.types.outcome import Outcome
from workflows.types.state import AgentState


def with_attempts(state: AgentState, outcomes: tuple[Outcome, ...], now: datetime) -> AgentState:
    """Count failed calls, forget those that succeeded."""
    for outcome in outcomes:
        if outcome.status == "failed":
            state = with_failed_call(state, outcome.call, outcome.error or outcome.text, now)
        elif outcome.status == "ok":
            state = with_succeeded_call(state, outcome.call)
    return state
