"""Metrics that activities record. Without telemetry the API's instruments do nothing."""

from collections.abc import Iterable

from opentelemetry.metrics import get_meter

from workflows.types import telemetry_names as names
from workflows.types.breaker import PROVIDER_PREFIX, BreakerScope
from workflows.types.gate import Verdict
from workflows.types.messages import ToolCall

_meter = get_meter(names.SCOPE)

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
iterations = _meter.create_counter(names.ITERATION_COUNT, unit="{iteration}", description="Replies of models")
denials = _meter.create_counter(names.DENIAL_COUNT, unit="{proposal}", description="Proposals that the gate denied")
circuits_opened = _meter.create_counter(names.CIRCUITS_OPENED, unit="{circuit}", description="Circuits that opened")


def count_opened_circuit(name: str, scope: BreakerScope) -> None:
    """Count a circuit that opened, by its tool or its provider."""
    is_provider = name.startswith(PROVIDER_PREFIX)
    what = {names.PROVIDER: name.removeprefix(PROVIDER_PREFIX)} if is_provider else {names.TOOL: name}
    circuits_opened.add(1, {**what, names.CIRCUIT_SCOPE: scope})


def count_denials(calls: Iterable[ToolCall], verdicts: tuple[Verdict, ...]) -> None:
    """Count what the gate denied, the answer where there is no call.

    Only tools that exist are denied (others are invalid), so no name that a model made up becomes an attribute.
    """
    tools = [call.name for call in calls]
    for index, verdict in enumerate(verdicts):
        if verdict.decision == "deny":
            what = {names.PROPOSAL: "tool_call", names.TOOL: tools[index]} if tools else {names.PROPOSAL: "answer"}
            denials.add(1, what)
