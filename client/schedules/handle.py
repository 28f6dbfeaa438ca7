"""One schedule of runs: describe, trigger, pause, resume and delete it."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleOverlapPolicy,
)
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import NotAnAgent, OrgaError, ScheduleNotFound
from orga.client.server.server_errors import error_reason
from orga.workflows.types.names import RUN_WORKFLOWS
from orga.workflows.types.text import clean_text

_LOOKS, _BETWEEN_LOOKS_S = 50, 0.1
"""Looks, and seconds between them. A schedule starts a run within a tenth of a second, unless it waits for another."""

_BUFFERING_POLICIES = {ScheduleOverlapPolicy.BUFFER_ONE, ScheduleOverlapPolicy.BUFFER_ALL}


@dataclass(frozen=True)
class TriggerResult:
    """The result of a trigger."""

    outcome: Literal["started", "skipped", "buffered", "pending"]
    """`skipped` and `buffered` follow from the overlap policy. `pending`: the schedule has not decided yet."""
    run_id: str = ""
    """The id of the started run."""


class ScheduleHandle:
    """A schedule of runs or goals."""

    def __init__(self, client: Client, schedule_id: str) -> None:
        self.id = schedule_id
        self._schedule = client.get_schedule_handle(schedule_id)

    async def describe(self) -> ScheduleDescription:
        """Return the server's description of the schedule.

        Raises:
            ScheduleNotFound: There is no schedule with this id.
            NotAnAgent: It starts something else.
        """
        try:
            described = await self._schedule.describe()
        except RPCError as error:
            raise schedule_error(error, self.id) from error
        action = described.schedule.action
        if not isinstance(action, ScheduleActionStartWorkflow):
            raise NotAnAgent(self.id, "schedule")
        if action.workflow not in RUN_WORKFLOWS:
            raise NotAnAgent(self.id, f"schedule of {action.workflow}")
        return described

    async def trigger(self) -> TriggerResult:
        """Start a run now, by the schedule's overlap policy, even if paused. Wait a moment for the outcome."""
        before = await self.describe()
        try:
            await self._schedule.trigger()
        except RPCError as error:
            raise schedule_error(error, self.id) from error
        for _ in range(_LOOKS):
            if (found := _trigger_result(before, await self.describe())) is not None:
                return found
            await asyncio.sleep(_BETWEEN_LOOKS_S)
        return TriggerResult("pending")

    async def pause(self, why: str) -> None:
        """Start no more runs at its times. `why` becomes its note. Live runs continue."""
        await self.describe()
        try:
            await self._schedule.pause(note=clean_text(why))
        except RPCError as error:
            raise schedule_error(error, self.id) from error

    async def resume(self, why: str) -> None:
        """Start runs again. Runs that were due meanwhile are not started."""
        await self.describe()
        try:
            await self._schedule.unpause(note=clean_text(why))
        except RPCError as error:
            raise schedule_error(error, self.id) from error

    async def delete(self) -> None:
        """Delete the schedule. Its runs stay, and live ones continue."""
        await self.describe()
        try:
            await self._schedule.delete()
        except RPCError as error:
            raise schedule_error(error, self.id) from error


def schedule_error(error: RPCError, schedule_id: str) -> OrgaError:
    """Return the error for a user after the server failed a request."""
    if error.status == RPCStatusCode.NOT_FOUND:
        return ScheduleNotFound(schedule_id)
    return OrgaError(
        f"the Temporal server answered {error.status.name.lower()}: {error_reason(error)}; see `orga doctor`"
    )


def _trigger_result(before: ScheduleDescription, now: ScheduleDescription) -> TriggerResult | None:
    last = now.info.recent_actions[-1].action if now.info.recent_actions else None
    if now.info.num_actions > before.info.num_actions and isinstance(last, ScheduleActionExecutionStartWorkflow):
        return TriggerResult("started", last.workflow_id)
    if now.info.num_actions_skipped_overlap > before.info.num_actions_skipped_overlap:
        return TriggerResult("skipped")
    has_more = now.raw_description.info.buffer_size > before.raw_description.info.buffer_size
    if has_more and now.info.running_actions and now.schedule.policy.overlap in _BUFFERING_POLICIES:
        return TriggerResult("buffered")
    return None
