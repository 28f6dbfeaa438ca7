"""Converts values for histories and back, and limits the arguments that others send to a live run.

A value is plain JSON by pydantic, without unset fields. It is decoded in the context of its workflow or activity,
because the application's codec may have a key for each workflow. Large values may be in its external storage.

A live run does not read an argument of a signal or update that is too large to be valid and slow to parse. One workflow
task reads all signals that arrived since the last one, and the SDK gives it two seconds. A task that takes longer is
repeated for ever. Replays and folds of the history leave out the same arguments.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import PydanticPayloadConverter, ToJsonOptions
from temporalio.converter import (
    ActivitySerializationContext,
    CompositePayloadConverter,
    DataConverter,
    EncodingPayloadConverter,
    PayloadConverter,
    WorkflowSerializationContext,
)

from orga.client.errors import UnreadableRun
from orga.workflows.types.json_text import as_object, as_text, has_more_parts, without_strings
from orga.workflows.types.record import UnreadablePayload

T = TypeVar("T")


class FrugalPayloadConverter(PydanticPayloadConverter):
    """Omits unset fields, so that defaults take no space in histories.

    The SDK creates a converter for each run and each workflow task. All of them share the converters of the encodings,
    which hold nothing but caches of types.
    """

    def __init__(self) -> None:
        self.converters = _converters()

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Read payloads. If any type is accepted, a payload that cannot be read becomes an `UnreadablePayload`.

        Otherwise a starter's broken bytes would fail the workflow task again and again.
        """
        if type_hints:
            return super().from_payloads(payloads, type_hints)
        return [self._decode_any(payload) for payload in payloads]

    def _decode_any(self, payload: Payload) -> Any:
        try:
            return super().from_payloads([payload], None)[0]
        except Exception:  # converters raise anything for broken bytes
            return UnreadablePayload()


@cache
def _converters() -> Mapping[bytes, EncodingPayloadConverter]:
    return PydanticPayloadConverter(ToJsonOptions(exclude_unset=True)).converters


data_converter = DataConverter(payload_converter_class=FrugalPayloadConverter)
"""The converter of every client and worker of orga."""


_MAX_OBJECT_BYTES = 700_000
"""Bytes of an argument that is not a string. The largest valid one is a result that a person gives a run to use."""

MAX_PARTS = 1_000
"""The number of lists, objects and commas in an argument that is not a string."""

MAX_DIGITS = 400
"""Digits of a number in an argument. The time to parse a number is quadratic in its length."""

MAX_UPDATE_BYTES = 1_900_000
"""Bytes of all arguments of an update. The answer repeats them, and the server refuses answers of 2 MiB."""

_DIGITS = re.compile(rb"[0-9]++")


def bounded_payloads(payloads: Iterable[Payload]) -> list[Payload]:
    """Return the arguments. A short text replaces each argument that is too large."""
    return [_placeholder(payload) if _is_too_large(payload.data) else payload for payload in payloads]


def bound_activation(activation: WorkflowActivation) -> None:
    """Limit the arguments of signals and updates that a worker passes to a workflow.

    An update with too many bytes is removed. Then the server reports to its sender that it was not accepted, and the
    run continues.
    """
    jobs = [job for job in activation.jobs if not _is_large_update(job)]
    for job in jobs:
        if job.HasField("signal_workflow"):
            arguments = job.signal_workflow.input
        elif job.HasField("do_update"):
            arguments = job.do_update.input
        else:
            continue
        bounded = bounded_payloads(arguments)
        del arguments[:]
        arguments.extend(bounded)
    if len(jobs) < len(activation.jobs):
        del activation.jobs[:]
        activation.jobs.extend(jobs)


def _is_large_update(job: WorkflowActivationJob) -> bool:
    arguments = job.do_update.input if job.HasField("do_update") else ()
    return sum(len(payload.data) for payload in arguments) > MAX_UPDATE_BYTES


def _is_too_large(data: bytes) -> bool:
    if data.startswith(b'"'):
        return False
    if len(data) > _MAX_OBJECT_BYTES or has_more_parts(data, MAX_PARTS):
        return True
    return any(len(digits) > MAX_DIGITS for digits in _DIGITS.findall(without_strings(data)))


def _placeholder(payload: Payload) -> Payload:
    text = f"[not read: an argument of {len(payload.data)} bytes that is no text]"
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(text).encode())


@dataclass(frozen=True)
class RunConverters:
    """The converters for the values in a run's history: one for each workflow or activity that wrote some."""

    base: DataConverter
    """The client's converter, without a context."""
    namespace: str
    workflow_id: str
    workflow_type: str = ""

    @property
    def own_converter(self) -> DataConverter:
        """The converter for the run's input, signals, notes and result."""
        return self.for_workflow(self.workflow_id)

    def for_workflow(self, workflow_id: str) -> DataConverter:
        """Return the converter for the input and the result of this run or of a delegate."""
        return self.base.with_context(WorkflowSerializationContext(self.namespace, workflow_id))

    def for_activity(self, scheduled: ActivityTaskScheduledEventAttributes) -> DataConverter:
        """Return the converter for the input, result and failure of an activity."""
        return self.for_activity_named(scheduled.activity_type.name, scheduled.activity_id, scheduled.task_queue.name)

    def for_activity_named(
        self, name: str, activity_id: str, task_queue: str, *, is_local: bool = False
    ) -> DataConverter:
        """Return the converter for an activity. A local one runs on the task queue of its workflow."""
        context = ActivitySerializationContext(
            namespace=self.namespace,
            activity_id=activity_id,
            activity_type=name,
            activity_task_queue=task_queue,
            workflow_id=self.workflow_id,
            workflow_type=self.workflow_type,
            is_local=is_local,
        )
        return self.base.with_context(context)


def run_converters(client: Client, workflow_id: str, workflow_type: str = "") -> RunConverters:
    """Return the converters for a run of which no history was read yet."""
    return RunConverters(client.data_converter, client.namespace, workflow_id, workflow_type)


def converters_of(client: Client, history: WorkflowHistory) -> RunConverters:
    """Return the converters for a history from the client's server."""
    return converters_in(history, client.data_converter, client.namespace)


def converters_in(history: WorkflowHistory, converter: DataConverter, namespace: str) -> RunConverters:
    """Return the converters for a history, which may also be from a file."""
    started = history.events[0].workflow_execution_started_event_attributes
    return RunConverters(converter, namespace, history.workflow_id, started.workflow_type.name)


async def decode_payloads(converter: DataConverter, payloads: Iterable[Payload]) -> list[Payload]:
    """Undo the codec and read from external storage. Raise UnreadableRun if this client lacks the storage."""
    copies = Payloads(payloads=payloads)
    try:
        await converter._transform_inbound_payloads(copies)
    except RuntimeError as error:
        if converter.external_storage is not None:
            raise
        raise UnreadableRun(
            f"values of this run are in an external storage, which this client does not have: {error}"
        ) from error
    return list(copies.payloads)


async def decode_own(converter: DataConverter, payloads: Iterable[Payload]) -> list[Payload]:
    """As `decode_payloads`, for values that a worker wrote. Raise UnreadableRun if this client lacks the codec."""
    decoded = await decode_payloads(converter, payloads)
    known = _encodings(converter.payload_converter_class)
    if known and any(payload.metadata.get("encoding") not in known for payload in decoded):
        raise UnreadableRun
    return decoded


@cache
def _encodings(kind: type[PayloadConverter]) -> Collection[bytes]:
    """Return the encodings that a converter reads. Empty if they are unknown."""
    converter = kind()
    return converter.converters.keys() if isinstance(converter, CompositePayloadConverter) else ()


def read_values(converter: DataConverter, items: Sequence[Payload]) -> list[Any]:
    """Return decoded payloads as JSON values. One that cannot be read becomes a text."""
    return [_json_value(value) for value in converter.payload_converter.from_payloads(items)]


def _json_value(value: Any) -> Any:
    """Return a value as JSON. Bytes are decoded as the workflow decodes them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if isinstance(value, UnreadablePayload) else value


async def intervention_arguments(converter: DataConverter, payloads: Iterable[Payload]) -> list[Any]:
    """Return the arguments of a signal or update. A short text replaces those that the live run did not read."""
    return read_values(converter, bounded_payloads(await decode_payloads(converter, payloads)))


async def require_readable(converters: RunConverters, history: WorkflowHistory) -> None:
    """Raise UnreadableRun if this client lacks the codec or the storage with which workers wrote the history."""
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled = event.activity_task_scheduled_event_attributes
            await decode_own(converters.for_activity(scheduled), scheduled.input.payloads)
            return


def readable(value: T | UnreadablePayload) -> T:
    """Return a value that a worker wrote. Raise UnreadableRun if this client could not decode it."""
    if isinstance(value, UnreadablePayload):
        raise UnreadableRun
    return value


async def recorded_failure_text(converter: DataConverter, failure: Failure) -> str:
    """Return the message of the innermost failure, preceded by its type if it has one."""
    while failure.HasField("cause"):
        failure = failure.cause
    message = failure.message
    if failure.HasField("encoded_attributes"):
        attributes = converter.payload_converter.from_payloads(
            await decode_payloads(converter, [failure.encoded_attributes])
        )
        message = as_text(as_object(attributes[0] if attributes else None).get("message")) or message
    kind = failure.application_failure_info.type if failure.HasField("application_failure_info") else ""
    return f"{kind}: {message}" if kind else message
