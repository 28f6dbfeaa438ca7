"""What the server says is under way in a run: attempts, their last failure, the text that streams in."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from pydantic_core import from_json
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecutionDescription
from temporalio.converter import DataConverter

from orga.client.cli.flights import InFlight


async def in_flight(description: WorkflowExecutionDescription, converter: DataConverter) -> tuple[InFlight, ...]:
    """Return the pending activities, in order of their ids."""
    pending = sorted(description.raw_description.pending_activities, key=lambda activity: activity.activity_id)
    return tuple([await _one(activity, converter) for activity in pending])


async def _one(activity: PendingActivityInfo, converter: DataConverter) -> InFlight:
    runs = activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return InFlight(
        activity_id=activity.activity_id,
        name=activity.activity_type.name,
        attempt=activity.attempt,
        failure=_failure(activity),
        text=await _text(activity.heartbeat_details.payloads, converter),
        since=_time(activity.last_started_time) if runs else None,
        retry_at=_time(activity.next_attempt_schedule_time) if activity.attempt > 1 and not runs else None,
    )


def _failure(activity: PendingActivityInfo) -> str:
    return activity.last_failure.message if activity.HasField("last_failure") else ""


async def _text(payloads: Sequence[Payload], converter: DataConverter) -> str:
    """Return the streamed text of a model call; a heartbeat of another shape has none."""
    if not payloads:
        return ""
    decoded = await converter.payload_codec.decode(payloads) if converter.payload_codec else list(payloads)
    try:
        details: Any = from_json(decoded[0].data)
    except ValueError:
        return ""
    text: Any = details.get("text") if isinstance(details, dict) else ""  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return text if isinstance(text, str) else ""


def _time(stamp: Timestamp) -> datetime | None:
    return stamp.ToDatetime(tzinfo=UTC) if stamp.seconds else None
