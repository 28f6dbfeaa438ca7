"""Metrics and spans of what workflow code decides: told once, not again by a replay."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry.trace import Span, Status, StatusCode, get_current_span, get_tracer, use_span
from opentelemetry.util.types import AttributeValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from orga.activities.instruments import count_opened_circuit, count_recovery, record_wait
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.context import Setup
from orga.workflows.types.gate import Verdict
from orga.workflows.types.journal import Note
from orga.workflows.types.questions import Wait
from orga.workflows.types.state import AgentState


def show_change(before: AgentState, after: AgentState) -> None:
    """Tell what a change of the state means to who watches: circuits, recoveries, questions that are closed."""
    for note in after.notes:
        _count(note)
    if before.waits != after.waits:
        still = {wait.wait_id for wait in after.waits}
        for wait in before.waits:
            if wait.wait_id not in still:
                _show_wait(wait)


def _count(note: Note) -> None:
    if workflow.unsafe.is_replaying():
        return
    if note.event == "CircuitOpened":
        count_opened_circuit(note.data["tool"], "run")
    elif note.event == "RecoveryTriggered":
        count_recovery(note.data)


def _show_wait(wait: Wait) -> None:
    """Show a question from its asking to its closing as a span of its own; a replay makes it, too, and ends it not."""
    if get_current_span().is_recording():
        tracer = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL)
        since = int(wait.since.timestamp() * 1e9)
        tracer.start_span(f"wait {wait.kind}", attributes={names.WAIT_KIND: wait.kind}, start_time=since).end()
    if not workflow.unsafe.is_replaying():
        record_wait(wait.kind, wait.since)


@contextmanager
def phase_span(phase: str, iteration: int) -> Generator[None]:
    """Time a phase, if the run has a span: only orga's own tracer provider, which is safe under replay, opens that."""
    if not get_current_span().is_recording():
        yield
        return
    with opened(phase, {names.ITERATION: iteration}):
        yield


@contextmanager
def opened(name: str, attributes: Mapping[str, AttributeValue]) -> Generator[Span]:
    """Open a span in workflow code and make it current. The exception it may leave by is named, never quoted."""
    span = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL).start_span(name, attributes=attributes)
    with use_span(span, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except Exception as error:
            # Any other exception fails the workflow task only: the attempt that succeeds ends its own span.
            if workflow.is_failure_exception(error):
                span.set_attribute(names.ERROR, _kind(error))
                span.set_status(Status(StatusCode.ERROR))
                span.end()
            raise
        except BaseException:
            span.end()
            raise
    span.end()


def name_run(setup: Setup) -> None:
    """Name the run's span after its agent, and say which model it has."""
    span = get_current_span()
    span.update_name(f"invoke_agent {setup.agent}")
    provider, _, model = setup.model.partition(":")
    span.set_attribute(names.AGENT, setup.agent)
    span.set_attribute(names.PROVIDER, provider)
    span.set_attribute(names.REQUEST_MODEL, model)


def show_verdicts(verdicts: tuple[Verdict, ...]) -> None:
    """Note on the phase's span how much was turned down."""
    span = get_current_span()
    if span.is_recording():
        span.set_attribute(names.DENIED, sum(verdict.decision == "deny" for verdict in verdicts))


def _kind(error: Exception) -> str:
    return (isinstance(error, ApplicationError) and error.type) or type(error).__name__
