"""The metrics of workers and runs, as tables, and the spans of model calls and tool calls.

They never record the content of a conversation. Unless a process has started telemetry, they do nothing.
"""

import asyncio
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from opentelemetry.metrics import get_meter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_tracer, use_span
from opentelemetry.util.types import Attributes, AttributeValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.ports import ModelError, ModelRequest
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.breakers import PROVIDER_PREFIX, BreakerScope
from orga.workflows.types.tool_calls.gate import Verdict

COUNTERS: dict[str, tuple[str, str]] = {
    names.ITERATION_COUNT: ("{iteration}", "Replies of models"),
    names.DENIAL_COUNT: ("{proposal}", "Proposals that the gate denied"),
    names.INVALID_COUNT: ("{proposal}", "Proposals that fit no tool, no arguments or no schema"),
    names.COST: ("USD", "Cost of model calls, if a price is known"),
    names.CACHE_MISSES: ("{miss}", "Conversations that had to be rebuilt from their history"),
    names.RECOVERIES: ("{call}", "Failed calls, by the recovery strategy that was used"),
    names.CIRCUITS_OPENED: ("{circuit}", "Circuits that opened"),
    names.RUNS_STARTED: ("{run}", "Runs that began"),
    names.RUN_COUNT: ("{run}", "Runs that ended, by ending"),
}
"""Unit and description."""

HISTOGRAMS: dict[str, tuple[str, tuple[float, ...], str]] = {
    names.TOKEN_USAGE: ("{token}", names.TOKEN_BUCKETS, "Tokens of one model call, by type"),
    names.MODEL_DURATION: ("s", names.SECONDS_BUCKETS, "One attempt of a model call"),
    names.TOOL_DURATION: ("s", names.SECONDS_BUCKETS, "One attempt of a tool call, by tool and outcome"),
    names.WAIT_DURATION: ("s", names.WAIT_BUCKETS, "From asking a person until the question is closed, by kind"),
    names.RUN_DURATION: ("s", names.RUN_BUCKETS, "Duration of a run that ended, without pauses and waits for people"),
    names.HISTORY_SIZE: ("By", names.SIZE_BUCKETS, "History of a run that ended or continued as new"),
    names.HISTORY_EVENTS: ("{event}", names.EVENT_BUCKETS, "Events of a run that ended or continued as new"),
    names.LOOP_LAG: (
        "s",
        names.SECONDS_BUCKETS,
        "Delay of a worker's event loop. All runs of the worker wait that long",
    ),
    names.LOOP_HELD: (
        "s",
        names.SECONDS_BUCKETS,
        "Times of more than a second for which one task held a worker's event loop, by activity",
    ),
}
"""Unit, buckets and description."""

_meter = get_meter(names.SCOPE, schema_url=names.SCHEMA_URL)
_counters = {name: _meter.create_counter(name, unit, description) for name, (unit, description) in COUNTERS.items()}
_histograms = {
    name: _meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)
    for name, (unit, buckets, description) in HISTOGRAMS.items()
}


def count(name: str, labels: Attributes = None, *, by: float = 1) -> None:
    _counters[name].add(by, labels)


def record(name: str, value: float, labels: Attributes = None) -> None:
    _histograms[name].record(value, labels)


def count_opened_circuit(name: str, scope: BreakerScope) -> None:
    is_provider = name.startswith(PROVIDER_PREFIX)
    owner = {names.PROVIDER: name.removeprefix(PROVIDER_PREFIX)} if is_provider else {names.TOOL: name}
    count(names.CIRCUITS_OPENED, {**owner, names.CIRCUIT_SCOPE: scope})


def count_recovery(note: Mapping[str, Any]) -> None:
    count(names.RECOVERIES, {names.TOOL: note["tool"], names.STRATEGY: note["strategy"]})


def count_verdicts(calls: Sequence[ToolCall], verdicts: Iterable[Verdict], known: Container[str]) -> None:
    """Count the denied and the invalid proposals. Without calls, the proposal is the answer.

    Only `known` tools are named, because a model can make up names.
    """
    for index, verdict in enumerate(verdicts):
        labels = {names.PROPOSAL: "tool_call" if calls else "answer"}
        if verdict.decision == "invalid":
            count(names.INVALID_COUNT, labels)
        elif verdict.decision == "deny":
            tool = {names.TOOL: calls[index].name} if calls and calls[index].name in known else {}
            count(names.DENIAL_COUNT, labels | tool)


def record_wait(kind: str, since: datetime) -> None:
    seconds = (datetime.now(UTC) - since).total_seconds()
    record(names.WAIT_DURATION, max(seconds, 0.0), {names.WAIT_KIND: kind})


_CANCELLED = "cancelled"


@contextmanager
def model_span(setup: Setup, request: ModelRequest) -> Generator[Callable[[Reply], None]]:
    """Time one attempt of a model call. Yield a function that records the reply's token use."""
    labels: dict[str, AttributeValue] = {
        names.OPERATION: "chat",
        names.PROVIDER: setup.model.partition(":")[0],
        names.REQUEST_MODEL: request.model,
    }
    attributes = labels | {names.AGENT: setup.agent, names.REQUEST_MAX_TOKENS: request.max_output_tokens}
    if request.settings.temperature is not None:
        attributes[names.REQUEST_TEMPERATURE] = request.settings.temperature

    def record_end(seconds: float, failure: str) -> None:
        record(names.MODEL_DURATION, seconds, labels | ({names.ERROR: failure} if failure else {}))

    with _timed_span(f"chat {request.model}", SpanKind.CLIENT, attributes, record_end) as span:
        yield lambda reply: _record_reply(span, reply, labels, setup.agent)


@contextmanager
def tool_span(tool: str, call_id: str) -> Generator[None]:
    attributes = {names.OPERATION: "execute_tool", names.TOOL: tool, names.TOOL_CALL: call_id}

    def record_end(seconds: float, failure: str) -> None:
        labels = {names.TOOL: tool, names.OUTCOME: "ok"}
        if failure:
            outcome = _CANCELLED if failure == _CANCELLED else "failed"
            labels |= {names.OUTCOME: outcome, names.ERROR: failure}
        record(names.TOOL_DURATION, seconds, labels)

    with _timed_span(f"execute_tool {tool}", SpanKind.INTERNAL, attributes, record_end):
        yield


def _record_reply(span: Span, reply: Reply, request_labels: Mapping[str, AttributeValue], agent: str) -> None:
    usage = reply.usage
    span.set_attribute(names.FINISH_REASONS, (reply.finish,))
    span.set_attribute(names.INPUT_TOKENS, usage.input_tokens)
    span.set_attribute(names.CACHED_TOKENS, usage.cached_input_tokens)
    span.set_attribute(names.OUTPUT_TOKENS, usage.output_tokens)
    if usage.thinking_tokens:
        span.set_attribute(names.THINKING_TOKENS, usage.thinking_tokens)
    labels = {**request_labels, names.RESPONSE_MODEL: reply.model or request_labels[names.REQUEST_MODEL]}
    span.set_attribute(names.RESPONSE_MODEL, labels[names.RESPONSE_MODEL])
    record(names.TOKEN_USAGE, usage.input_tokens, {**labels, names.TOKEN_TYPE: "input"})
    record(names.TOKEN_USAGE, usage.output_tokens, {**labels, names.TOKEN_TYPE: "output"})
    if reply.cost_usd:
        count(names.COST, {**labels, names.AGENT: agent}, by=reply.cost_usd)
    count(names.ITERATION_COUNT, {names.AGENT: agent})


@contextmanager
def _timed_span(
    name: str, kind: SpanKind, attributes: Mapping[str, AttributeValue], record_end: Callable[[float, str], None]
) -> Generator[Span]:
    info = activity.info()
    attributes = {**attributes, names.CONVERSATION: info.workflow_id or "", names.ATTEMPT: info.attempt}
    span = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL).start_span(name, kind=kind, attributes=attributes)
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
    kind = None
    if isinstance(error, asyncio.CancelledError):
        kind = _CANCELLED
    elif isinstance(error, ModelError):
        kind = error.kind
    elif isinstance(error, ApplicationError):
        kind = error.type
    return kind or type(error).__name__
