"""Metrics that activities record. Without telemetry the API's instruments do nothing."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from opentelemetry.metrics import get_meter

from workflows.types import telemetry_names as names
from workflows.types.breaker import PROVIDER_PREFIX, BreakerScope
from workflows.types.gate import Verdict
from workflows.types.messages import ToolCall

_meter = get_meter(names.SCOPE, schema_url=names.SCHEMA_URL)

token_usage = _meter.create_histogram(
    names.TOKEN_USAGE,
    unit="{token}",
    description="Tokens of one model call, by type",
    explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
)
model_duration = _meter.create_histogram(
    names.MODEL_DURATION,
    unit="s",
    description="One attempt of a model call",
    explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
)
tool_duration = _meter.create_histogram(
    names.TOOL_DURATION,
    unit="s",
    description="One attempt of a tool call, by tool and outcome",
    explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
)
loop_lag = _meter.create_histogram(
    names.LOOP_LAG,
    unit="s",
    description="How late the event loop of a worker was: all its runs wait as long",
    explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
)
loop_held = _meter.create_histogram(
    names.LOOP_HELD,
    unit="s",
    description="Times that one task held the event loop of a worker for more than a second, by activity",
    explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
)
iterations = _meter.create_counter(names.ITERATION_COUNT, unit="{iteration}", description="Replies of models")
denials = _meter.create_counter(names.DENIAL_COUNT, unit="{proposal}", description="Proposals that the gate denied")
invalid = _meter.create_counter(
    names.INVALID_COUNT, unit="{proposal}", description="Proposals that fit no tool, no arguments or no schema"
)
cost = _meter.create_counter(names.COST, unit="USD", description="What model calls cost, where a price is known")
cache_misses = _meter.create_counter(
    names.CACHE_MISSES, unit="{miss}", description="Conversations that had to be rebuilt from their history"
)
recoveries = _meter.create_counter(names.RECOVERIES, unit="{call}", description="Failed calls, by what was done then")
wait_duration = _meter.create_histogram(
    names.WAIT_DURATION,
    unit="s",
    description="From a question to a person until it is closed, by its kind",
    explicit_bucket_boundaries_advisory=names.WAIT_BUCKETS,
)
circuits_opened = _meter.create_counter(names.CIRCUITS_OPENED, unit="{circuit}", description="Circuits that opened")


def count_opened_circuit(name: str, scope: BreakerScope) -> None:
    """Count a circuit that opened, by its tool or its provider."""
    is_provider = name.startswith(PROVIDER_PREFIX)
    what = {names.PROVIDER: name.removeprefix(PROVIDER_PREFIX)} if is_provider else {names.TOOL: name}
    circuits_opened.add(1, {**what, names.CIRCUIT_SCOPE: scope})


def count_recovery(note: Mapping[str, Any]) -> None:
    """Count a failed call by its tool and what was done about it."""
    recoveries.add(1, {names.TOOL: note["tool"], names.STRATEGY: note["strategy"]})


def count_verdicts(calls: Iterable[ToolCall], verdicts: tuple[Verdict, ...]) -> None:
    """Count what the gate denied and what was invalid, the answer where there is no call.

    Only tools that exist are denied; the name of an invalid call, which a model may have made up, is no attribute.
    """
    tools = [call.name for call in calls]
    for index, verdict in enumerate(verdicts):
        what = {names.PROPOSAL: "tool_call" if tools else "answer"}
        if verdict.decision == "deny":
            denials.add(1, what | ({names.TOOL: tools[index]} if tools else {}))
        elif verdict.decision == "invalid":
            invalid.add(1, what)


def record_wait(kind: str, since: datetime) -> None:
    """Record how long a question to a person stood open, until now."""
    seconds = (datetime.now(UTC) - since).total_seconds()
    wait_duration.record(max(seconds, 0.0), {names.WAIT_KIND: kind})
