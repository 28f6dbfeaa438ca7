"""The metrics of workers and runs, as a table. Without telemetry the API's instruments do nothing."""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from opentelemetry.metrics import get_meter
from opentelemetry.util.types import Attributes

from orga.workflows.types import telemetry_names as names
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.breakers import PROVIDER_PREFIX, BreakerScope
from orga.workflows.types.tool_calls.gate import Verdict

COUNTERS: dict[str, tuple[str, str]] = {
    names.ITERATION_COUNT: ("{iteration}", "Replies of models"),
    names.DENIAL_COUNT: ("{proposal}", "Proposals that the gate denied"),
    names.INVALID_COUNT: ("{proposal}", "Proposals that fit no tool, no arguments or no schema"),
    names.COST: ("USD", "What model calls cost, where a price is known"),
    names.CACHE_MISSES: ("{miss}", "Conversations that had to be rebuilt from their history"),
    names.RECOVERIES: ("{call}", "Failed calls, by what was done then"),
    names.CIRCUITS_OPENED: ("{circuit}", "Circuits that opened"),
    names.RUNS_STARTED: ("{run}", "Runs that began"),
    names.RUN_COUNT: ("{run}", "Runs that ended, by ending"),
}
"""Unit and description."""

HISTOGRAMS: dict[str, tuple[str, tuple[float, ...], str]] = {
    names.TOKEN_USAGE: ("{token}", names.TOKEN_BUCKETS, "Tokens of one model call, by type"),
    names.MODEL_DURATION: ("s", names.SECONDS_BUCKETS, "One attempt of a model call"),
    names.TOOL_DURATION: ("s", names.SECONDS_BUCKETS, "One attempt of a tool call, by tool and outcome"),
    names.WAIT_DURATION: ("s", names.WAIT_BUCKETS, "From a question to a person until it is closed, by its kind"),
    names.RUN_DURATION: (
        "s",
        names.RUN_BUCKETS,
        "The clock of a run that ended: pauses and waits for people are left out",
    ),
    names.HISTORY_SIZE: ("By", names.SIZE_BUCKETS, "History of a run that ended or continued as new"),
    names.HISTORY_EVENTS: ("{event}", names.EVENT_BUCKETS, "Events of a run that ended or continued as new"),
    names.LOOP_LAG: (
        "s",
        names.SECONDS_BUCKETS,
        "How late the event loop of a worker was: all its runs wait as long",
    ),
    names.LOOP_HELD: (
        "s",
        names.SECONDS_BUCKETS,
        "Times that one task held the event loop of a worker for more than a second, by activity",
    ),
}
"""Unit, buckets and description."""

_meter = get_meter(names.SCOPE, schema_url=names.SCHEMA_URL)
_counters = {name: _meter.create_counter(name, unit, description) for name, (unit, description) in COUNTERS.items()}
_histograms = {
    name: _meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)
    for name, (unit, buckets, description) in HISTOGRAMS.items()
}


def count(name: str, about: Attributes = None, *, by: float = 1) -> None:
    _counters[name].add(by, about)


def record(name: str, value: float, about: Attributes = None) -> None:
    _histograms[name].record(value, about)


def count_opened_circuit(name: str, scope: BreakerScope) -> None:
    is_provider = name.startswith(PROVIDER_PREFIX)
    what = {names.PROVIDER: name.removeprefix(PROVIDER_PREFIX)} if is_provider else {names.TOOL: name}
    count(names.CIRCUITS_OPENED, {**what, names.CIRCUIT_SCOPE: scope})


def count_recovery(note: Mapping[str, Any]) -> None:
    count(names.RECOVERIES, {names.TOOL: note["tool"], names.STRATEGY: note["strategy"]})


def count_verdicts(calls: Sequence[ToolCall], verdicts: Iterable[Verdict], known: Container[str]) -> None:
    """Count the denied and the invalid proposals. Without calls, the proposal is the answer.

    Only `known` tools are named, because a model can make up names.
    """
    for index, verdict in enumerate(verdicts):
        about = {names.PROPOSAL: "tool_call" if calls else "answer"}
        if verdict.decision == "invalid":
            count(names.INVALID_COUNT, about)
        elif verdict.decision == "deny":
            named = {names.TOOL: calls[index].name} if calls and calls[index].name in known else {}
            count(names.DENIAL_COUNT, about | named)


def record_wait(kind: str, since: datetime) -> None:
    seconds = (datetime.now(UTC) - since).total_seconds()
    record(names.WAIT_DURATION, max(seconds, 0.0), {names.WAIT_KIND: kind})
