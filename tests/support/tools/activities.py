"""Runs an activity as a worker would, without a server."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic_core import to_json
from temporalio.testing import ActivityEnvironment

from orga.activities.ports import ModelContext, RunKey
from orga.workflows.types.context import DigestMismatch

T = TypeVar("T")
RUN = RunKey("agent-1", "run-1")


class NoHistory:
    """A history without any content."""

    async def rebuild(self, run: RunKey, iteration: int) -> ModelContext:
        """Say so."""
        raise DigestMismatch(f"the history ends before iteration {iteration}")


class Beats:
    """An environment that keeps heartbeats. `left_s` is the time until the server gives up on the activity."""

    def __init__(self, left_s: float | None = 60.0, **info: Any) -> None:
        """Start with this remaining time and more fields of the activity's info."""
        self.environment = ActivityEnvironment()
        self.beats: list[Any] = []
        self.environment.on_heartbeat = self._beat
        limit = None if left_s is None else timedelta(seconds=left_s)
        now = datetime.now(UTC)
        known: dict[str, Any] = {"workflow_id": RUN.workflow_id, "workflow_run_id": RUN.run_id}
        known |= {"scheduled_time": now, "started_time": now, "start_to_close_timeout": timedelta(seconds=60)}
        self.environment.info = replace(self.environment.info, **{**known, "schedule_to_close_timeout": limit, **info})

    async def run(self, activity: Callable[[Any], Awaitable[T]], request: Any) -> T:
        """Run the activity, and let its errors pass."""
        return await self.environment.run(activity, request)

    def _beat(self, *details: Any) -> None:
        to_json(details)  # an unserialisable heartbeat would cancel the activity
        self.beats.append(details[0])
