"""Finds what a rewind to a boundary drops: interventions by people, effects of tools, and live delegates.

A rewind aborts the live delegates of the part that it drops, and waits until they have ended.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import PastRefused, RunEnded, RunNotFound
from orga.client.history.chain import Boundary, RunHistory, histories, run_chain
from orga.client.history.events import passed_on_state, start_arguments
from orga.client.history.values import RunConverters, converters_of, intervention_arguments
from orga.client.runs.exchange import Exchange
from orga.workflows.decisions.begin import carried_state_in_input
from orga.workflows.decisions.control.interventions import signal_text, split_sender
from orga.workflows.decisions.result import call_summary
from orga.workflows.types.control import REWOUND
from orga.workflows.types.json_text import as_object
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.delegation import delegate_activity_id
from orga.workflows.types.tool_calls.gate import START_SUFFIX
from orga.workflows.types.tool_calls.loop_tools import RUN_TOOL
from orga.workflows.types.tool_calls.tools import ToolRequest, ToolSpec

TEXT_CHARS = 300
"""Characters of an intervention or of arguments."""

OUTCOME_UNKNOWN = "not known to have ended"
ENDING_INTERVENTIONS = frozenset({"abort", "cancel"})
"""Interventions that are never delivered again, because they would end the run again."""

_EVENT_OUTCOMES = {
    "activity_task_completed_event_attributes": "ok",
    "activity_task_failed_event_attributes": "failed",
    "activity_task_timed_out_event_attributes": "timed out, unknown",
    "activity_task_canceled_event_attributes": "cancelled, unknown",
    "child_workflow_execution_completed_event_attributes": "ended",
    "child_workflow_execution_failed_event_attributes": "failed",
    "child_workflow_execution_timed_out_event_attributes": "timed out",
    "child_workflow_execution_canceled_event_attributes": "cancelled",
    "child_workflow_execution_terminated_event_attributes": "terminated",
}
"""The outcome of a call or a delegated run, by the event that ends it."""


@dataclass(frozen=True)
class SentIntervention:
    """A signal, an update or a cancellation, as people sent it."""

    kind: str
    at: datetime
    text: str


@dataclass(frozen=True)
class Effect:
    """A call that may have changed something, even if it failed. No rewind undoes it."""

    iteration: int
    tool: str
    at: datetime
    text: str
    is_irreversible: bool = False
    arguments: str = ""
    """JSON on one line, cut."""
    outcome: str = OUTCOME_UNKNOWN
    """`ok`, or how it failed. For a delegated run, how it ended."""


def events_after(runs: Sequence[RunHistory], boundary: Boundary) -> Iterator[HistoryEvent]:
    """Yield the events after the boundary, also those of all later segments."""
    index = [run.run_id for run in runs].index(boundary.run_id)
    yield from (event for event in runs[index].events if event.event_id > boundary.event_id)
    for run in runs[index + 1 :]:
        yield from run.events


async def interventions_after(
    client: Client, runs: Sequence[RunHistory], boundary: Boundary
) -> tuple[SentIntervention, ...]:
    """Return the interventions that people sent after the boundary, in order."""
    converter = converters_of(client, runs[0].history).own_converter
    by_event = [await _read_intervention(converter, event) for event in events_after(runs, boundary)]
    return tuple(sent for sent in by_event if sent is not None)


async def effects_after(client: Client, runs: Sequence[RunHistory], boundary: Boundary) -> tuple[Effect, ...]:
    """Return the calls after the boundary that are not read-only, in order. Delegated runs are included."""
    converters = converters_of(client, runs[0].history)
    setup = await recorded_setup(converters, (event for run in runs for event in run.events))
    specs = {tool.name: tool for tool in setup.tools} if setup else {}
    effects: list[Effect] = []
    started: dict[int, int] = {}  # indexes of effects, by the number of the event with which each began
    for event in events_after(runs, boundary):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:  # event numbers start again
            started = {}
        effect = await _effect(converters, event, specs)
        if effect is not None:
            started[event.event_id] = len(effects)
            effects.append(effect)
        elif (ending := _call_ending(event)) and ending.start_event in started:
            index = started[ending.start_event]
            effects[index] = replace(effects[index], outcome=ending.outcome)
    return tuple(effects)


async def _read_intervention(converter: DataConverter, event: HistoryEvent) -> SentIntervention | None:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            signal = event.workflow_execution_signaled_event_attributes
            values = await intervention_arguments(converter, signal.input.payloads)
            if signal.signal_name == REWOUND:
                return _intervention("rewind", event, [as_object(value).get("steer") for value in values])
            return _intervention(signal.signal_name, event, values)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            update = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
            return _intervention(update.name, event, await intervention_arguments(converter, update.args.payloads))
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
            return _intervention("cancel", event, [])
        case _:
            return None


async def _effect(converters: RunConverters, event: HistoryEvent, specs: dict[str, ToolSpec]) -> Effect | None:
    if event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
        child = event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id
        return Effect(
            iteration=_iteration(delegate_activity_id(child)),
            tool=RUN_TOOL,
            at=_time(event),
            text=f"{RUN_TOOL} {child}",
            is_irreversible=True,
        )
    if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return None
    attributes = event.activity_task_scheduled_event_attributes
    spec = specs.get(attributes.activity_type.name)
    if spec is None or spec.effect == "read_only":
        return None
    has_start = spec.deferred is not None and spec.deferred.has_start
    if has_start and not attributes.activity_id.endswith(START_SUFFIX):
        return None  # this activity only ends the call; its start is the effect
    call = await _tool_call(converters.for_activity(attributes), attributes.input, spec)
    return Effect(
        iteration=_iteration(attributes.activity_id),
        tool=spec.name,
        at=_time(event),
        text=call_summary(call, spec),
        is_irreversible=spec.effect == "irreversible",
        arguments=one_line(to_json(call.arguments, inf_nan_mode="strings").decode(), TEXT_CHARS),
    )


class _CallEnding(NamedTuple):
    start_event: int
    """The number of the event with which the call or the delegated run began."""
    outcome: str


def _call_ending(event: HistoryEvent) -> _CallEnding | None:
    name = event.WhichOneof("attributes") or ""
    if name not in _EVENT_OUTCOMES:
        return None
    attributes: Any = getattr(event, name)
    start_event = getattr(attributes, "scheduled_event_id", 0) or getattr(attributes, "started_event_id", 0)
    return _CallEnding(int(start_event), _EVENT_OUTCOMES[name])


async def _tool_call(converter: DataConverter, payloads: Payloads, spec: ToolSpec) -> ToolCall:
    try:
        request = ToolRequest.model_validate((await converter.decode(payloads.payloads))[0])
    except (ValidationError, IndexError):
        return ToolCall(call_id="", name=spec.name)
    return ToolCall(call_id=request.call_id, name=spec.name, arguments=request.arguments)


async def recorded_setup(converters: RunConverters, events: Iterable[HistoryEvent]) -> Setup | None:
    """Return the setup that the first segment prepared, or that the oldest remaining segment received."""
    prepared: dict[int, DataConverter] = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            carried = await _read_carried(converters.own_converter, event.workflow_execution_started_event_attributes)
            if carried is not None:
                return carried
        elif event.activity_task_scheduled_event_attributes.activity_type.name == "prepare":
            prepared[event.event_id] = converters.for_activity(event.activity_task_scheduled_event_attributes)
        elif converter := prepared.get(event.activity_task_completed_event_attributes.scheduled_event_id):
            result = event.activity_task_completed_event_attributes.result
            return Setup.model_validate((await converter.decode(result.payloads))[0])
    return None


async def _read_carried(converter: DataConverter, started: WorkflowExecutionStartedEventAttributes) -> Setup | None:
    """Return the setup that the previous segment passed on."""
    state = carried_state_in_input(passed_on_state(await start_arguments(converter, started)))
    return state.setup if state and state.carried_by else None


def _intervention(kind: str, event: HistoryEvent, values: list[Any]) -> SentIntervention:
    without_sender = (split_sender(values[0])[0], *values[1:]) if values else ()
    return SentIntervention(kind, _time(event), one_line(signal_text(without_sender), TEXT_CHARS))


def _iteration(place: str) -> int:
    iteration = place.partition(".")[0]
    return int(iteration) if iteration.isdigit() else 0


def _time(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(tzinfo=UTC)


GRACE_S = 75.0
"""Seconds for all aborted delegates to end. Running calls get 5 seconds, and then a run gets 60 to compensate."""


@dataclass(frozen=True)
class LiveDelegate:
    workflow_id: str
    iteration: int
    """The iteration in which its parent started it."""
    at: datetime


async def live_delegates(client: Client, events: Iterable[HistoryEvent]) -> tuple[LiveDelegate, ...]:
    """Return the live delegates that these events started, and the live ones that those delegates have started.

    A delegate that has ended may have started one that is still live.
    """
    delegates: list[LiveDelegate] = []
    for event in events:
        if event.event_type != EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
            continue
        workflow_id = event.start_child_workflow_execution_initiated_event_attributes.workflow_id
        if await _is_live(client, workflow_id):
            delegates.append(LiveDelegate(workflow_id, _iteration(delegate_activity_id(workflow_id)), _time(event)))
        delegates += await live_delegates(client, await _events(client, workflow_id))
    return tuple(delegates)


async def abort_delegates(client: Client, delegates: Sequence[LiveDelegate], why: str) -> None:
    """Abort delegates and wait until they have ended, also to compensate. Raise NoAnswer or OrgaError if that fails."""
    runs = [Exchange(client, delegate.workflow_id) for delegate in delegates]
    try:
        async with asyncio.timeout(GRACE_S):
            for run in runs:
                await _abort(run, why)
            for run in runs:
                with suppress(WorkflowFailureError):
                    await run.workflow.result()
    except TimeoutError:
        ids = ", ".join([each.workflow_id for each in delegates if await _is_live(client, each.workflow_id)])
        raise PastRefused(
            f"a delegate has not ended {GRACE_S:g} s after its abort: {ids}; `orga status` shows what it does, "
            "try again once it has ended"
        ) from None


async def _abort(run: Exchange, why: str) -> None:
    with suppress(RunEnded):
        await run.require_worker()
        await run.signal("abort", why)


async def _is_live(client: Client, workflow_id: str) -> bool:
    try:
        described = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise
    return described.status == WorkflowExecutionStatus.RUNNING


async def _events(client: Client, workflow_id: str) -> list[HistoryEvent]:
    try:
        runs = await histories(client, await run_chain(client, workflow_id))
    except RunNotFound:
        return []
    return [event for run in runs for event in run.events]
