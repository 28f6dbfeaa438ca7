"""Spans opened in workflow code, inside the run's span: one for each phase. Without telemetry they are nothing."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry.trace import Span, Status, StatusCode, get_current_span, get_tracer, use_span
from opentelemetry.util.types import AttributeValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.types import telemetry_names as names
from workflows.types.context import Setup
from workflows.types.gate import Verdict


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
