"""Taint: which untrusted content has entered a conversation. Policies may ask for more care from then on."""

from collections.abc import Sequence

from orga.workflows.types.mcp import DEFINITIONS
from orga.workflows.types.outcome import Outcome
from orga.workflows.types.state import AgentState


def with_definitions(state: AgentState) -> AgentState:
    """Return the state in which the servers of tools that nobody has pinned are named: a stranger described those.

    Their descriptions and schemas are in the first model call already.
    """
    offered = state.setup.tools if state.setup else ()
    servers = (f"{DEFINITIONS}{tool.name.partition('_')[0]}" for tool in offered if tool.digest and not tool.pinned)
    taint = tuple(dict.fromkeys((*state.taint, *servers)))
    return state if taint == state.taint else state.with_dialogue(taint=taint)


def tainted(state: AgentState, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the tools whose content has entered, with those of these outcomes; trusted tools leave no taint."""
    trusted = {spec.name for spec in (state.setup.tools if state.setup else ()) if spec.options.trusted_output}
    entered = [outcome for outcome in outcomes if outcome.status in {"ok", "failed"}]
    new = (tool for outcome in entered for tool in (outcome.call.name, outcome.by) if tool)
    return tuple(dict.fromkeys((*state.taint, *(tool for tool in new if tool not in trusted))))
