"""Spans and metrics of what activities do outside. They record what happened, never the content of a conversation."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from time import perf_counter

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_tracer, use_span
from opentelemetry.util.types import AttributeValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.instruments import count, record
from orga.activities.ports import ModelError, ModelRequest
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.messages import Reply
from orga.workflows.types.setup import Setup

ReplyRecorder = Callable[[Reply], Reply]

_CANCELLED = "cancelled"


@contextmanager
def model_span(setup: Setup, request: ModelRequest) -> Generator[ReplyRecorder]:
    """Time one attempt of a model call. Yield a function that records the reply's token use and returns the reply."""
    asked: dict[str, AttributeValue] = {
        names.OPERATION: "chat",
        names.PROVIDER: setup.model.partition(":")[0],
        names.REQUEST_MODEL: request.model,
    }
    about = asked | {names.AGENT: setup.agent, names.REQUEST_MAX_TOKENS: request.max_output_tokens}
    if request.settings.temperature is not None:
        about[names.REQUEST_TEMPERATURE] = request.settings.temperature

    def record_end(seconds: float, failure: str) -> None:
        record(names.MODEL_DURATION, seconds, asked | ({names.ERROR: failure} if failure else {}))

    with _timed_span(f"chat {request.model}", SpanKind.CLIENT, about, record_end) as span:
        yield lambda reply: _record_reply(span, reply, asked, setup.agent)


@contextmanager
def tool_span(tool: str, call_id: str) -> Generator[None]:
    about = {names.OPERATION: "execute_tool", names.TOOL: tool, names.TOOL_CALL: call_id}

    def record_end(seconds: float, failure: str) -> None:
        outcome = "ok" if not failure else _CANCELLED if failure == _CANCELLED else "failed"
        failed = {names.ERROR: failure} if failure else {}
        record(names.TOOL_DURATION, seconds, {names.TOOL: tool, names.OUTCOME: outcome, **failed})

    with _timed_span(f"execute_tool {tool}", SpanKind.INTERNAL, about, record_end):
        yield


def _record_reply(span: Span, reply: Reply, asked: Mapping[str, AttributeValue], agent: str) -> Reply:
    usage = reply.usage
    span.set_attribute(names.FINISH_REASONS, (reply.finish,))
    span.set_attribute(names.INPUT_TOKENS, usage.input_tokens)
    span.set_attribute(names.CACHED_TOKENS, usage.cached_input_tokens)
    span.set_attribute(names.OUTPUT_TOKENS, usage.output_tokens)
    if usage.thinking_tokens:
        span.set_attribute(names.THINKING_TOKENS, usage.thinking_tokens)
    answered = {**asked, names.RESPONSE_MODEL: reply.model or asked[names.REQUEST_MODEL]}
    span.set_attribute(names.RESPONSE_MODEL, answered[names.RESPONSE_MODEL])
    record(names.TOKEN_USAGE, usage.input_tokens, {**answered, names.TOKEN_TYPE: "input"})
    record(names.TOKEN_USAGE, usage.output_tokens, {**answered, names.TOKEN_TYPE: "output"})
    if reply.cost_usd:
        count(names.COST, {**answered, names.AGENT: agent}, by=reply.cost_usd)
    count(names.ITERATION_COUNT, {names.AGENT: agent})
    return reply


@contextmanager
def _timed_span(
    name: str, kind: SpanKind, attributes: Mapping[str, AttributeValue], record_end: Callable[[float, str], None]
) -> Generator[Span]:
    info = activity.info()
    about = {**attributes, names.CONVERSATION: info.workflow_id or "", names.ATTEMPT: info.attempt}
    span = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL).start_span(name, kind=kind, attributes=about)
    started, failure = perf_counter(), ""
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except BaseException as error:
            failure = _error_kind(error)
            span.set_attribute(names.ERROR, failure)
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            record_end(perf_counter() - started, failure)


def _error_kind(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return _CANCELLED
    named = error.kind if isinstance(error, ModelError) else error.type if isinstance(error, ApplicationError) else None
    return named or type(error).__name__
