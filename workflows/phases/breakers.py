"""The circuits of a run around its tool calls: decided in `decisions.breakers`, shown where people look."""

from collections.abc import Generator
from contextlib import contextmanager

from temporalio import workflow

from orga.workflows.decisions import breakers
from orga.workflows.phases.control.failures import failure_kind
from orga.workflows.phases.failures import is_infrastructure
from orga.workflows.phases.run import Run, show_circuits
from orga.workflows.types.tools import ToolSpec
from orga.workflows.types.versions import CLOSED_CIRCUIT_SHOWN


def let_through(run: Run, spec: ToolSpec) -> str:
    """Return "" when the call may go ahead, else what the model is told."""
    state, refusal = breakers.admitted(run.state, spec, run.now)
    run.change(lambda _: state)
    return refusal


def succeeded(run: Run, spec: ToolSpec) -> None:
    """Take in a success."""
    with _shown(run, spec):
        run.change(breakers.with_success, spec)


def failed(run: Run, spec: ToolSpec, error: BaseException) -> None:
    """Take in a failure; one that is the call's own fault says nothing about the tool."""
    if not is_infrastructure(error, spec.options.non_retryable):
        return released(run, spec)
    with _shown(run, spec):
        run.change(breakers.with_failure, spec, run.now, failure_kind(error))
    return None


def released(run: Run, spec: ToolSpec) -> None:
    """Take in a call that was cancelled or failed by its own fault."""
    with _shown(run, spec):
        run.change(breakers.with_released, spec)


@contextmanager
def _shown(run: Run, spec: ToolSpec) -> Generator[None]:
    before = _state_of(run, spec)
    yield
    after = _state_of(run, spec)
    if (before == "open") != (after == "open") or (
        (before, after) == ("half_open", "closed")
        and run.setup.search_attributes
        and workflow.patched(CLOSED_CIRCUIT_SHOWN)
    ):
        show_circuits(run)


def _state_of(run: Run, spec: ToolSpec) -> str:
    breaker = run.state.breakers.get(spec.name)
    return breaker.state if breaker is not None else "closed"
