"""Search attributes: what `orga list` and the Temporal UI find runs by."""

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from workflows.types.context import Setup
from workflows.types.result import StopReason
from workflows.types.search_attributes import AGENT, COST_USD, ITERATION, PHASE, TENANT, TERMINATION
from workflows.types.state import AgentState

EVERY_ITERATIONS = 10
"""Progress is written this often: each upsert is an event, and histories stay as small as those of a bare loop."""


def show_start(state: AgentState, setup: Setup) -> None:
    """Write what stays the same in a run."""
    tenant = [TENANT.value_set(state.input.tenant)] if state.input.tenant else []
    _upsert(setup, [AGENT.value_set(setup.agent), *tenant, PHASE.value_set(state.phase)])


def show_progress(state: AgentState, setup: Setup) -> None:
    """Write how far the run is, at every tenth iteration."""
    if state.iteration % EVERY_ITERATIONS == 0:
        _upsert(setup, _progress(state))


def show_phase(state: AgentState, setup: Setup) -> None:
    """Write the phase at once: for phases that last (paused)."""
    _upsert(setup, [PHASE.value_set(state.phase)])


def show_end(state: AgentState, setup: Setup, reason: StopReason) -> None:
    """Write how the run ended."""
    _upsert(setup, [*_progress(state), TERMINATION.value_set(reason)])


def _progress(state: AgentState) -> list[SearchAttributeUpdate[Any]]:
    cost = [] if state.usage.cost_usd is None else [COST_USD.value_set(state.usage.cost_usd)]
    return [PHASE.value_set(state.phase), ITERATION.value_set(state.iteration), *cost]


def _upsert(setup: Setup, updates: list[SearchAttributeUpdate[Any]]) -> None:
    if setup.search_attributes:
        workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]
