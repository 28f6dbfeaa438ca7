"""One call of a tool that is another worker's activity."""

from typing import Any

from pydantic import Field

from orga.workflows.types.record import CheckedInput


class ActivityCall(CheckedInput):
    """Input of `ActivityCallWorkflow`."""

    activity: str = Field(min_length=1, max_length=200)
    """The activity's type."""
    task_queue: str = Field(min_length=1, max_length=200)
    """The queue of the worker that has it."""
    arguments: dict[str, Any] = {}
    """The activity's first argument."""
    context: dict[str, str] | None = None
    """Its second argument. None: it has none."""
    timeout_s: float = Field(gt=0, le=86_400)
    """Seconds from the start of the activity to its end."""
    pickup_s: float = Field(gt=0, le=86_400)
    """Seconds until a worker has to take it."""
    heartbeat_timeout_s: float | None = Field(default=None, gt=0, le=86_400)
    """Seconds of silence after which it counts as lost. None: it need not report."""
