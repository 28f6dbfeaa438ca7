"""Decodes the events of a run's history to `Happening`s, from which journal, timeline and conversation are folded."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from orga.activities.ports import ModelContext, RunKey
from orga.client.history.chain import history_error
from orga.client.history.values import (
    RunConverters,
    converters_of,
    decode_own,
    decode_payloads,
    intervention_arguments,
    read_values,
    recorded_failure_text,
    run_converters,
)
from orga.workflows.decisions.recount import ContextFold
from orga.workflows.decisions.tool_calls.calls import effect_text
from orga.workflows.types.context import DigestMismatch
from orga.workflows.types.control import NOTES_MEMO, REWOUND
from orga.workflows.types.messages import Message
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.status import Happening, HappeningKind

EVENTS_AT_ONCE = 50
"""After so many events, the reader lets other tasks of the process run."""


class DecodedEvent(NamedTuple):
    event: HistoryEvent
    happening: Happening | None
    """None for an event that no fold uses."""


async def decoded_events(
    client: Client, workflow_id: str, run_id: str, *, follow: bool = False
) -> AsyncGenerator[DecodedEvent]:
    """Yield the events of one segment, in order. The client's codec decodes the payloads.

    With `follow`, wait for new events until the segment ends.

    Raises:
        OrgaError: The server does not return the history.
    """
    reader = _EventReader(run_converters(client, workflow_id))
    async for event in _fetch_events(client, workflow_id, run_id, follow=follow):
        yield DecodedEvent(event, await reader.read(event))
        if event.event_id % EVENTS_AT_ONCE == 0:
            await asyncio.sleep(0)


async def happenings(client: Client, workflow_id: str, run_id: str) -> AsyncGenerator[Happening]:
    """Yield the events of one segment that a fold uses, as `decoded_events` decodes them."""
    async for _, happening in decoded_events(client, workflow_id, run_id):
        if happening is not None:
            yield happening


async def _fetch_events(
    client: Client, workflow_id: str, run_id: str, *, follow: bool = False
) -> AsyncGenerator[HistoryEvent]:
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    try:
        async for event in handle.fetch_history_events(wait_new_event=follow):
            yield event
    except RPCError as error:
        raise history_error(workflow_id, error) from error


async def read_events(converters: RunConverters, events: Iterable[HistoryEvent]) -> AsyncGenerator[Happening]:
    """Yield the events that a fold uses. The events must be those of one segment, from its first."""
    reader = _EventReader(converters)
    for event in events:
        happening = await reader.read(event)
        if happening is not None:
            yield happening


async def folded_context(client: Client, history: WorkflowHistory, iteration: int) -> tuple[Message, ...]:
    """Return the conversation of an iteration's model call, or the one that this segment began with if it has no call.

    Raises:
        DigestMismatch: A model call's digest does not fit the messages in the history.
    """
    fold, messages = ContextFold(), tuple[Message, ...]()
    try:
        async for happening in read_events(converters_of(client, history), history.events):
            fold.feed(happening)
            if fold.iteration <= iteration:
                messages = fold.messages
    except ValidationError as error:
        raise _digest_mismatch(error) from error
    return messages


def _digest_mismatch(error: ValidationError) -> DigestMismatch:
    return DigestMismatch(f"the history cannot be read: {error.error_count()} values do not fit")


class ClientHistorySource:
    """Rebuilds a conversation from the run's own history, for the activities that call models in a worker."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def rebuild(self, run: RunKey, iteration: int) -> ModelContext:
        """Return the context of that iteration's model call."""
        fold = ContextFold()
        try:
            async for happening in happenings(self._client, run.workflow_id, run.run_id):
                fold.feed(happening)
        except ValidationError as error:
            raise _digest_mismatch(error) from error
        if fold.setup is None or fold.iteration != iteration:
            raise DigestMismatch(f"the history ends at iteration {fold.iteration}, not {iteration}")
        return ModelContext(fold.setup, fold.messages)


async def start_arguments(converter: DataConverter, started: WorkflowExecutionStartedEventAttributes) -> list[Any]:
    """Return the arguments of a segment: the run's input, and the state that the segment before passed on, if any."""
    arguments = read_values(converter, await decode_payloads(converter, started.input.payloads))
    # a run ignores a state from anybody but the segment before
    return arguments if started.continued_execution_run_id else arguments[:1]


def passed_on_state(arguments: list[Any] | None) -> Any:
    """Return the state in the arguments of a segment, or None in a run's first segment."""
    return arguments[1] if arguments and len(arguments) > 1 else None


async def selected_happenings(
    client: Client, workflow_id: str, run_id: str, event_ids: Collection[int]
) -> dict[int, Happening]:
    """Return some events of a segment by their ids. Of the others, only those are decoded that these refer to."""
    reader = _EventReader(run_converters(client, workflow_id))
    scheduled: dict[int, HistoryEvent] = {}
    selected: dict[int, Happening] = {}
    last = max(event_ids, default=0)
    async for event in _fetch_events(client, workflow_id, run_id):
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled[event.event_id] = event
        if event.event_id in event_ids or event.event_id == 1:  # the reader needs the first event for its context
            activity = scheduled.get(event.activity_task_completed_event_attributes.scheduled_event_id)
            if activity is not None:
                await reader.read(activity)
            if (happening := await reader.read(event)) is not None:
                selected[event.event_id] = happening
        if event.event_id >= last:
            break
    return selected


NO_RESET = "no reset was made here"
"""The reason why a run ignores a signal that claims a rewind."""


UNRECORDED = "an earlier attempt failed; no history holds how"
"""The failure of a local activity that was retried within its task, and of any retry on Temporal's test server."""


_Decode = Callable[[DataConverter, Iterable[Payload]], Awaitable[list[Payload]]]


class _OpenActivity(NamedTuple):
    name: str
    key: str
    converter: DataConverter
    attempts: int = 1
    failed_before: str = ""
    """The failure of the attempt before the last one, as in `Happening`."""


class _EventReader:
    """Decodes the events of one segment in order. It remembers open activities, to which later events only refer."""

    def __init__(self, converters: RunConverters) -> None:
        self._converters = converters
        self._own = converters.own_converter
        self._task_queue = ""
        self._activities: dict[int, _OpenActivity] = {}
        self._failed_before: dict[str, str] = {}
        """Failure texts by the id of a local activity that will be retried."""
        self._is_reset = False
        self._build = ""

    async def read(self, event: HistoryEvent) -> Happening | None:
        handler = _HANDLERS.get(event.event_type)
        return await handler(self, event) if handler else None

    def _pop_activity(self, scheduled_event_id: int) -> _OpenActivity:
        return self._activities.pop(scheduled_event_id, _OpenActivity("", "", self._own))

    def happening(self, kind: HappeningKind, event: HistoryEvent, **fields: Any) -> Happening:
        at = event.event_time.ToDatetime(tzinfo=UTC)
        return Happening(kind=kind, at=at, event_id=event.event_id, **fields)

    def child_happening(
        self, kind: HappeningKind, event: HistoryEvent, run: WorkflowExecution, **fields: Any
    ) -> Happening:
        return self.happening(kind, event, key=run.workflow_id, run_id=run.run_id, **fields)

    async def on_started(self, event: HistoryEvent) -> Happening:
        attributes = event.workflow_execution_started_event_attributes
        self._converters = replace(self._converters, workflow_type=attributes.workflow_type.name)
        self._task_queue = attributes.task_queue.name
        arguments = await start_arguments(self._own, attributes)
        return self.happening("started", event, name=attributes.workflow_type.name, value=arguments)

    async def on_signaled(self, event: HistoryEvent) -> Happening:
        attributes = event.workflow_execution_signaled_event_attributes
        value = await intervention_arguments(self._own, attributes.input.payloads)
        refused = NO_RESET if attributes.signal_name == REWOUND and not self._is_reset else ""
        return self.happening("signaled", event, name=attributes.signal_name, value=value, text=refused)

    async def on_task_failed(self, event: HistoryEvent) -> None:
        """Remember a reset. A run accepts a rewind signal only between a reset and the next completed workflow task."""
        self._is_reset = self._is_reset or bool(event.workflow_task_failed_event_attributes.base_run_id)

    async def on_task_completed(self, event: HistoryEvent) -> Happening | None:
        self._is_reset = False
        attributes = event.workflow_task_completed_event_attributes
        build = attributes.deployment_version.build_id or attributes.worker_version.build_id
        if build in ("", self._build):
            return None
        self._build = build
        return self.happening("decided", event, key=build)

    async def on_scheduled(self, event: HistoryEvent) -> Happening:
        attributes = event.activity_task_scheduled_event_attributes
        name, key = attributes.activity_type.name, attributes.activity_id
        converter = self._converters.for_activity(attributes)
        self._activities[event.event_id] = _OpenActivity(name, key, converter)
        return self.happening(
            "scheduled", event, name=name, key=key, value=await _first_value(converter, attributes.input)
        )

    async def on_attempt_started(self, event: HistoryEvent) -> None:
        """Remember the last attempt. The server writes this event only when the activity has ended."""
        attributes = event.activity_task_started_event_attributes
        activity = self._activities.get(attributes.scheduled_event_id)
        if activity is None or attributes.attempt < 2:
            return
        failure = attributes.last_failure
        if failure.HasField("timeout_failure_info"):
            text = ""  # the attempt was lost, for example with its worker; the call itself did not fail
        elif attributes.HasField("last_failure"):
            text = await recorded_failure_text(activity.converter, failure)
        else:
            text = UNRECORDED
        self._activities[attributes.scheduled_event_id] = activity._replace(
            attempts=attributes.attempt, failed_before=text
        )

    def activity_happening(
        self, kind: HappeningKind, event: HistoryEvent, activity: _OpenActivity, **fields: Any
    ) -> Happening:
        attempts = {"attempts": activity.attempts, "failed_before": activity.failed_before}
        return self.happening(kind, event, name=activity.name, key=activity.key, **attempts, **fields)

    async def on_finished(self, event: HistoryEvent) -> Happening:
        attributes = event.activity_task_completed_event_attributes
        activity = self._pop_activity(attributes.scheduled_event_id)
        # a tool in another worker may return any encoding
        decode = decode_own if activity.name in OWN_ACTIVITIES else decode_payloads
        value = await _first_value(activity.converter, attributes.result, decode)
        return self.activity_happening("finished", event, activity, value=value)

    async def on_failed(self, event: HistoryEvent) -> Happening:
        if event.HasField("activity_task_failed_event_attributes"):
            attributes = event.activity_task_failed_event_attributes
        else:
            attributes = event.activity_task_timed_out_event_attributes
        activity = self._pop_activity(attributes.scheduled_event_id)
        text = await recorded_failure_text(activity.converter, attributes.failure)
        effect = await _possible_effect_text(activity.converter, attributes.failure)
        return self.activity_happening("failed", event, activity, text=text, effect_text=effect)

    async def on_cancelled(self, event: HistoryEvent) -> Happening:
        activity = self._pop_activity(event.activity_task_canceled_event_attributes.scheduled_event_id)
        return self.activity_happening("cancelled", event, activity, effect_text=effect_text(took_effect=False))

    async def on_marker(self, event: HistoryEvent) -> Happening | None:
        attributes = event.marker_recorded_event_attributes
        if attributes.marker_name != "core_local_activity":
            return None
        data = from_json(attributes.details["data"].payloads[0].data)
        name, key, attempt = data["activity_type"], data["activity_id"], data.get("attempt") or 1
        converter = self._converters.for_activity_named(name, key, self._task_queue, is_local=True)
        has_failed = attributes.HasField("failure")
        text = await recorded_failure_text(converter, attributes.failure) if has_failed else ""
        will_be_retried = bool(data.get("backoff"))  # after a timer
        if will_be_retried:
            self._failed_before[key] = text
            return None
        before = "" if attempt < 2 else self._failed_before.pop(key, UNRECORDED)
        activity = _OpenActivity(name, key, converter, attempt, before)
        if has_failed:
            effect = await _possible_effect_text(converter, attributes.failure)
            return self.activity_happening("failed", event, activity, text=text, effect_text=effect)
        value = await _first_value(converter, attributes.details["result"]) if "result" in attributes.details else None
        return self.activity_happening("finished", event, activity, value=value)

    async def on_noted(self, event: HistoryEvent) -> Happening | None:
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if NOTES_MEMO not in fields:
            return None
        [notes] = read_values(self._own, await decode_own(self._own, [fields[NOTES_MEMO]]))
        return self.happening("noted", event, value=notes)

    async def on_updated(self, event: HistoryEvent) -> Happening:
        update = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
        value = await intervention_arguments(self._own, update.args.payloads)
        return self.happening("updated", event, name=update.name, value=value)

    async def on_child_started(self, event: HistoryEvent) -> Happening:
        attributes = event.start_child_workflow_execution_initiated_event_attributes
        value = await _first_value(self._converters.for_workflow(attributes.workflow_id), attributes.input)
        return self.happening(
            "child_started", event, name=attributes.workflow_type.name, key=attributes.workflow_id, value=value
        )

    async def on_child_finished(self, event: HistoryEvent) -> Happening:
        attributes = event.child_workflow_execution_completed_event_attributes
        run = attributes.workflow_execution
        value = await _first_value(self._converters.for_workflow(run.workflow_id), attributes.result)
        return self.child_happening("child_finished", event, run, value=value)

    async def on_child_failed(self, event: HistoryEvent) -> Happening:
        attributes = event.child_workflow_execution_failed_event_attributes
        run = attributes.workflow_execution
        text = await recorded_failure_text(self._converters.for_workflow(run.workflow_id), attributes.failure)
        return self.child_happening("child_failed", event, run, text=text)

    async def on_child_ended(self, event: HistoryEvent) -> Happening:
        ended: Any = getattr(event, event.WhichOneof("attributes") or "")
        text = _CHILD_ENDINGS[event.event_type]
        return self.child_happening("child_failed", event, ended.workflow_execution, text=text)

    async def on_child_not_started(self, event: HistoryEvent) -> Happening:
        key = event.start_child_workflow_execution_failed_event_attributes.workflow_id
        return self.happening("child_failed", event, key=key, text="it could not be started")

    async def on_workflow_completed(self, event: HistoryEvent) -> Happening:
        value = await _first_value(self._own, event.workflow_execution_completed_event_attributes.result)
        return self.happening("workflow_completed", event, value=value)

    async def on_workflow_failed(self, event: HistoryEvent) -> Happening:
        text = await recorded_failure_text(self._own, event.workflow_execution_failed_event_attributes.failure)
        return self.happening("workflow_failed", event, text=text)

    async def on_workflow_cancelled(self, event: HistoryEvent) -> Happening:
        return self.happening("workflow_cancelled", event)

    async def on_workflow_terminated(self, event: HistoryEvent) -> Happening:
        text = event.workflow_execution_terminated_event_attributes.reason
        return self.happening("workflow_terminated", event, text=text)

    async def on_workflow_timed_out(self, event: HistoryEvent) -> Happening:
        return self.happening("workflow_timed_out", event)

    async def on_continued_as_new(self, event: HistoryEvent) -> Happening:
        key = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        return self.happening("continued_as_new", event, key=key)


_CHILD_ENDINGS: dict[EventType.ValueType, str] = {
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED: "it was cancelled",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED: "it was terminated",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TIMED_OUT: "it timed out",
}

_HANDLERS: dict[EventType.ValueType, Callable[[_EventReader, HistoryEvent], Any]] = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: _EventReader.on_started,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: _EventReader.on_signaled,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED: _EventReader.on_task_failed,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED: _EventReader.on_task_completed,
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: _EventReader.on_scheduled,
    EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED: _EventReader.on_attempt_started,
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: _EventReader.on_finished,
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: _EventReader.on_failed,
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: _EventReader.on_failed,
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: _EventReader.on_cancelled,
    EventType.EVENT_TYPE_MARKER_RECORDED: _EventReader.on_marker,
    EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED: _EventReader.on_noted,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: _EventReader.on_updated,
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED: _EventReader.on_child_started,
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED: _EventReader.on_child_not_started,
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED: _EventReader.on_child_finished,
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED: _EventReader.on_child_failed,
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED: _EventReader.on_child_ended,
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED: _EventReader.on_child_ended,
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TIMED_OUT: _EventReader.on_child_ended,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: _EventReader.on_workflow_completed,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: _EventReader.on_workflow_failed,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: _EventReader.on_workflow_cancelled,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: _EventReader.on_workflow_terminated,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: _EventReader.on_workflow_timed_out,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: _EventReader.on_continued_as_new,
}


async def _possible_effect_text(converter: DataConverter, failure: Failure) -> str:
    """Return a sentence about the effect of a failed irreversible call, or "" if it certainly had none."""
    from orga.workflows.phases.failures import had_effect, may_have_acted  # few commands read a failure

    copied = Failure()
    copied.CopyFrom(failure)  # decoding changes it
    try:
        error = await converter.decode_failure(copied)
    except RuntimeError:  # its details are in an external storage that this client does not have
        return effect_text(took_effect=False)
    return effect_text(took_effect=had_effect(error)) if may_have_acted(error, "irreversible") else ""


async def _first_value(converter: DataConverter, payloads: Payloads, decode: _Decode = decode_own) -> Any:
    """Return the first value, or None if there is none."""
    values = read_values(converter, await decode(converter, payloads.payloads))
    return values[0] if values else None
