"""Decodes the values of a run's history, each in the context in which it was written.

The application's codec may have a key for each workflow, and its external storage may hold large values.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import ActivitySerializationContext, DataConverter, WorkflowSerializationContext

from orga.client.errors import OrgaError
from orga.workflows.types.json_text import as_object, as_text


@dataclass(frozen=True)
class RunValues:
    """A converter, and the run whose history it reads."""

    converter: DataConverter
    namespace: str
    workflow_id: str
    workflow_type: str = ""

    @property
    def own_converter(self) -> DataConverter:
        """The converter for the run's input, signals, notes and result."""
        return self.for_child(self.workflow_id)

    def for_child(self, workflow_id: str) -> DataConverter:
        """Return the converter for values sent to and received from another workflow."""
        return self.converter.with_context(WorkflowSerializationContext(self.namespace, workflow_id))

    def for_activity(self, scheduled: ActivityTaskScheduledEventAttributes) -> DataConverter:
        """Return the converter for the input, result and failure of an activity."""
        return self._converter_for(
            scheduled.activity_type.name, scheduled.activity_id, scheduled.task_queue.name, is_local=False
        )

    def for_running(self, name: str, activity_id: str, task_queue: str) -> DataConverter:
        """Return the converter for the heartbeats of an activity that is known from the run's description."""
        return self._converter_for(name, activity_id, task_queue, is_local=False)

    def for_local_activity(self, name: str, activity_id: str, task_queue: str) -> DataConverter:
        """Return the converter for the result of an activity that the workflow's own worker executed."""
        return self._converter_for(name, activity_id, task_queue, is_local=True)

    def _converter_for(self, name: str, activity_id: str, task_queue: str, *, is_local: bool) -> DataConverter:
        context = ActivitySerializationContext(
            namespace=self.namespace,
            activity_id=activity_id,
            activity_type=name,
            activity_task_queue=task_queue,
            workflow_id=self.workflow_id,
            workflow_type=self.workflow_type,
            is_local=is_local,
        )
        return self.converter.with_context(context)


def values_of(client: Client, history: WorkflowHistory) -> RunValues:
    """Return the values of a history on a client's server."""
    return values_in(history, client.data_converter, client.namespace)


def values_in(history: WorkflowHistory, converter: DataConverter, namespace: str) -> RunValues:
    """Return the values of a history, wherever it is kept."""
    started = history.events[0].workflow_execution_started_event_attributes
    return RunValues(converter, namespace, history.workflow_id, started.workflow_type.name)


async def decode_payloads(converter: DataConverter, payloads: Iterable[Payload]) -> list[Payload]:
    """Return payloads without codec and external storage. Raise OrgaError if only the storage has them."""
    copies = Payloads(payloads=payloads)
    try:
        await converter._transform_inbound_payloads(copies)
    except RuntimeError as error:
        if converter.external_storage is not None:
            raise
        raise OrgaError(
            f"values of this run lie in an external storage, which this client does not have: {error}"
        ) from error
    return list(copies.payloads)


async def recorded_failure_text(converter: DataConverter, failure: Failure) -> str:
    """Return the innermost message, preceded by its type if it has one."""
    while failure.HasField("cause"):
        failure = failure.cause
    message = failure.message
    if failure.HasField("encoded_attributes"):
        attributes = converter.payload_converter.from_payloads(
            await decode_payloads(converter, [failure.encoded_attributes])
        )
        message = _message_in(attributes) or message
    kind = failure.application_failure_info.type if failure.HasField("application_failure_info") else ""
    return f"{kind}: {message}" if kind else message


def _message_in(values: Sequence[Any]) -> str:
    return as_text(as_object(values[0] if values else None).get("message"))
