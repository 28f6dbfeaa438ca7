"""Search attributes: what `orga list`, `orga inbox` and the Temporal UI find runs by."""

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from orga.workflows.phases.run import Run
from orga.workflows.types.names import (
    AGENT,
    COST_USD,
    DEAD_LETTERS,
    ITERATION,
    OPEN_CIRCUITS,
    PHASE,
    TENANT,
    TERMINATION,
    WAITING,
    WAITING_SINCE,
)
from orga.workflows.types.result import StopReason
from orga.workflows.types.state import AgentState

EVERY_ITERATIONS = 10
"""Progress is written this often: each upsert is an event, and histories stay as small as those of a bare loop."""

MAX_CIRCUITS = 20
"""That are named: the server refuses a value of more than 2 kB, and with it the workflow task."""


def show_start(run: Run) -> None:
    """Write what stays the same in a run."""
    tenant = run.state.input.tenant
    _upsert(
        run,
        AGENT.value_set(run.setup.agent),
        *([TENANT.value_set(tenant)] if tenant else []),
        PHASE.value_set(run.state.phase),
    )


def show_progress(run: Run) -> None:
    """Write how far the run is, at every tenth iteration."""
    if run.state.iteration % EVERY_ITERATIONS == 0:
        _upsert(run, *_progress(run.state))


def show_phase(run: Run) -> None:
    """Write the phase at once: for phases that last (paused)."""
    _upsert(run, PHASE.value_set(run.state.phase))


def show_waiting(run: Run) -> None:
    """Write what the run waits for a person for, the oldest question and since when or nothing, and how far it is."""
    oldest = next((wait for wait in run.state.waits if wait.resolution is None), None)
    if oldest is None:
        waiting = (WAITING.value_unset(), WAITING_SINCE.value_unset())
    else:
        waiting = (WAITING.value_set(oldest.kind), WAITING_SINCE.value_set(oldest.since))
    _upsert(run, *waiting, *_progress(run.state))


def show_dead_letters(run: Run) -> None:
    """Write how many calls wait to be sent again."""
    _upsert(run, DEAD_LETTERS.value_set(len(run.state.dead_letters)))


def show_circuits(run: Run) -> None:
    """Write the tools that are left alone at the moment: as many as the server takes in one value."""
    tools = sorted(tool for tool, breaker in run.state.breakers.items() if breaker.state == "open")[:MAX_CIRCUITS]
    _upsert(run, OPEN_CIRCUITS.value_set(tools) if tools else OPEN_CIRCUITS.value_unset())


def show_end(run: Run, reason: StopReason) -> None:
    """Write how the run ended."""
    _upsert(run, *_progress(run.state), TERMINATION.value_set(reason))


def show_goes_on(run: Run) -> None:
    """Write that a run whose end was written goes on after all."""
    _upsert(run, PHASE.value_set(run.state.phase), TERMINATION.value_unset())


def _progress(state: AgentState) -> list[SearchAttributeUpdate[Any]]:
    cost = [] if state.usage.cost_usd is None else [COST_USD.value_set(state.usage.cost_usd)]
    return [PHASE.value_set(state.phase), ITERATION.value_set(state.iteration), *cost]


def _upsert(run: Run, *updates: SearchAttributeUpdate[Any]) -> None:
    if run.setup.search_attributes:
        workflow.upsert_search_attributes(list(updates))  # pyright: ignore[reportUnknownMemberType]
