"""Search attributes of any run: what `orga list`, `orga inbox` and the Temporal UI find runs by."""

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from orga.workflows.phases.control.run import ControlledRun
from orga.workflows.types.control import StopReason
from orga.workflows.types.names import PHASE, TERMINATION, WAITING, WAITING_SINCE

EVERY_ITERATIONS = 10
"""Progress is written this often: each upsert is an event, and histories stay as small as those of a bare loop."""

AnyRun = ControlledRun[Any]


def upsert(run: AnyRun, *updates: SearchAttributeUpdate[Any]) -> None:
    """Write them, where the server knows them."""
    if run.state.terms.search_attributes:
        workflow.upsert_search_attributes(list(updates))  # pyright: ignore[reportUnknownMemberType]


def show_progress(run: AnyRun) -> None:
    """Write how far the run is, at every tenth iteration."""
    if run.state.iteration % EVERY_ITERATIONS == 0:
        upsert(run, *run.progress())


def show_phase(run: AnyRun) -> None:
    """Write the phase at once: for phases that last (paused)."""
    upsert(run, PHASE.value_set(run.state.phase))


def show_waiting(run: AnyRun) -> None:
    """Write what the run waits for a person for, the oldest question and since when or nothing, and how far it is."""
    oldest = next((question for question in run.state.questions if question.is_open), None)
    if oldest is None:
        waiting = (WAITING.value_unset(), WAITING_SINCE.value_unset())
    else:
        waiting = (WAITING.value_set(oldest.kind), WAITING_SINCE.value_set(oldest.since))
    upsert(run, *waiting, *run.progress())


def show_end(run: AnyRun, reason: StopReason) -> None:
    """Write how the run ended."""
    upsert(run, *run.progress(), TERMINATION.value_set(reason))


def show_goes_on(run: AnyRun) -> None:
    """Write that a run whose end was written goes on after all."""
    upsert(run, PHASE.value_set(run.state.phase), TERMINATION.value_unset())
