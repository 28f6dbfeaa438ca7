"""Taint: which untrusted content has entered a conversation. Policies may ask for more care from then on."""

from collections.abc import Sequence

from workflows.types.outcome import Outcome
from workflows.types.state import AgentState


def tainted(state: AgentState, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the tools whose content has entered, with those of these outcomes; trusted tools leave no taint."""
    trusted = {spec.name for spec in (state.setup.tools if state.setup else ()) if spec.options.trusted_output}
    entered = [outcome for outcome in outcomes if outcome.status in {"ok", "failed"}]
    new = (tool for outcome in entered for tool in (outcome.call.name, outcome.by) if tool)
    return tuple(dict.fromkeys((*state.taint, *(tool for tool in new if tool not in trusted))))
