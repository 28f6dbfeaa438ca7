"""Search attributes that only an agent's run has."""

from orga.workflows.phases.control.attributes import upsert
from orga.workflows.phases.run import Run
from orga.workflows.types.names import AGENT, DEAD_LETTERS, OPEN_CIRCUITS, PHASE, TENANT

MAX_CIRCUITS = 20
"""That are named: the server refuses a value of more than 2 kB, and with it the workflow task."""


def show_start(run: Run) -> None:
    """Write what stays the same in a run."""
    tenant = run.state.input.tenant
    upsert(
        run,
        AGENT.value_set(run.setup.agent),
        *([TENANT.value_set(tenant)] if tenant else []),
        PHASE.value_set(run.state.phase),
    )


def show_dead_letters(run: Run) -> None:
    """Write how many calls wait to be sent again."""
    upsert(run, DEAD_LETTERS.value_set(len(run.state.dead_letters)))


def show_circuits(run: Run) -> None:
    """Write the tools that are left alone at the moment: as many as the server takes in one value."""
    tools = sorted(tool for tool, breaker in run.state.breakers.items() if breaker.state == "open")[:MAX_CIRCUITS]
    upsert(run, OPEN_CIRCUITS.value_set(tools) if tools else OPEN_CIRCUITS.value_unset())
