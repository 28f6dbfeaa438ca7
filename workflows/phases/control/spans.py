"""Spans of workflow code, of its phases and of what waits for people: opened once, not ended by a replay."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry.trace import Span, Status, StatusCode, get_current_span, get_tracer, use_span
from opentelemetry.util.types import AttributeValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from orga.activities.instruments import record_wait
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.control import Control
from orga.workflows.types.questions import Question


def show_closed_questions(before: Control, after: Control) -> None:
    """Tell of the questions that are closed."""
    if before.questions == after.questions:
        return
    still = {question.question_id for question in after.questions}
    for question in before.questions:
        if question.question_id not in still:
            _show(question)


def _show(question: Question) -> None:
    """Show a question from its asking to its closing as a span of its own; a replay makes it, too, and ends it not."""
    if get_current_span().is_recording():
        tracer = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL)
        since = int(question.since.timestamp() * 1e9)
        tracer.start_span(f"wait {question.kind}", attributes={names.WAIT_KIND: question.kind}, start_time=since).end()
    if not workflow.unsafe.is_replaying():
        record_wait(question.kind, question.since)


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


def _kind(error: Exception) -> str:
    return (isinstance(error, ApplicationError) and error.type) or type(error).__name__
