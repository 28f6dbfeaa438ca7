"""The visible state of a run (search attributes, current details, spans), and the wait during a pause.

A replay opens the same spans again. The SDK's replay-safe spans ignore their end then, so none is exported twice.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import Span, Status, StatusCode, get_current_span, get_tracer, use_span
from opentelemetry.util.types import AttributeValue
from temporalio import workflow
from temporalio.common import SearchAttributeUpdate
from temporalio.exceptions import ApplicationError

from orga.workflows.decisions.control.interventions import with_pauses_applied
from orga.workflows.decisions.control.notifications import waiting_lines
from orga.workflows.phases.control.run import AnyRun, never
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.control import StopReason
from orga.workflows.types.names import PHASE, TERMINATION

EVERY_ITERATIONS = 10
"""Iterations between two writes of the progress. Each write is an event, and histories should stay small."""


def upsert_attributes(run: AnyRun, *updates: SearchAttributeUpdate[Any]) -> None:
    if run.state.terms.search_attributes:
        workflow.upsert_search_attributes(list(updates))  # pyright: ignore[reportUnknownMemberType]


def show_progress(run: AnyRun) -> None:
    if run.state.iteration % EVERY_ITERATIONS == 0:
        upsert_attributes(run, *run.progress_attributes())


def show_phase(run: AnyRun) -> None:
    """Write the phase at once. This is for phases that may last, such as a pause."""
    upsert_attributes(run, PHASE.value_set(run.state.phase))


def show_progress_now(run: AnyRun) -> None:
    upsert_attributes(run, *run.progress_attributes())


def show_end(run: AnyRun, reason: StopReason) -> None:
    upsert_attributes(run, *run.progress_attributes(), TERMINATION.value_set(reason))


def show_reopened(run: AnyRun) -> None:
    upsert_attributes(run, PHASE.value_set(run.state.phase), TERMINATION.value_unset())


def show_details(run: AnyRun) -> None:
    workflow.set_current_details(run.details(waiting_lines(run.state, workflow.info().workflow_id)))


def enter_phase(run: AnyRun, doing: str) -> None:
    run.state = run.state.with_control(doing=doing)
    show_details(run)


async def wait_if_paused(
    run: AnyRun, *, may_continue_as_new: bool = False, is_over: Callable[[], bool] = never
) -> None:
    """Wait while paused. An abort or `is_over` ends the wait.

    While a rewind may still undo an abort, first wait until that is decided.
    """
    if run.doubtful_aborts:
        await workflow.wait_condition(lambda: not run.doubtful_aborts)
    if not run.state.paused:
        return
    run.change_state(with_pauses_applied)  # sets `is_standing`
    _show_pause(run)
    try:
        await run.wait_until(
            lambda: not run.state.paused or run.is_interrupted() or is_over(), may_continue_as_new=may_continue_as_new
        )
    finally:
        run.state = run.state.with_control(is_standing=False)
    _show_pause(run)


def _show_pause(run: AnyRun) -> None:
    show_details(run)
    show_phase(run)


async def pause_checkpoint(run: AnyRun, *, may_continue_as_new: bool = False) -> None:
    """Wait while paused. Raise Interrupted if the run has to end."""
    await wait_if_paused(run, may_continue_as_new=may_continue_as_new)
    run.raise_if_interrupted()


@contextmanager
def phase_span(phase: str, iteration: int) -> Generator[None]:
    """Record a phase as a span, if the run itself has a span.

    Only orga's own tracer provider gives a run its span, and its spans are safe in replays.
    """
    if not get_current_span().is_recording():
        yield
        return
    with open_span(phase, {names.ITERATION: iteration}):
        yield


@contextmanager
def open_span(name: str, attributes: Mapping[str, AttributeValue]) -> Generator[Span]:
    """Open a span in workflow code and make it current. An exception is recorded by its type, never with its text."""
    span = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL).start_span(name, attributes=attributes)
    with use_span(span, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except Exception as error:
            # Any other exception only fails the workflow task. The attempt that succeeds ends its own span.
            if workflow.is_failure_exception(error):
                kind = error.type if isinstance(error, ApplicationError) else None
                span.set_attribute(names.ERROR, kind or type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
                span.end()
            raise
        except BaseException:  # continue-as-new, or a cancellation
            span.end()
            raise
    span.end()
