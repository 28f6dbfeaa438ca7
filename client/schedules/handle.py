"""Works on schedules that exist: lists, describes, triggers, pauses, resumes and deletes them."""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleInfo,
    ScheduleListActionStartWorkflow,
    ScheduleListDescription,
    ScheduleListInfo,
    ScheduleListSchedule,
    ScheduleOverlapPolicy,
    ScheduleSpec,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import NotAnAgent, OrgaError, RunNotFound, ScheduleNotFound
from orga.client.runs.agents import AgentHandle
from orga.client.runs.endings import read_ending
from orga.client.runs.listing import state_of
from orga.client.server.server_errors import error_reason
from orga.workflows.types.names import GOAL_WORKFLOW, RUN_WORKFLOWS
from orga.workflows.types.text import clean_text
from orga.workflows.types.workplace import WORKPLACE_MEMO, workplace_of

SUMMARY_MEMO = "orga_summary"
"""Key of the memo with the beginning of a schedule's task, because a list of schedules shows no input."""

_LOOKS = 50
"""Looks for the outcome of a trigger. A run begins within a tenth of a second, unless it waits for another run."""
_BETWEEN_LOOKS_S = 0.1

_BUFFERING_POLICIES = {ScheduleOverlapPolicy.BUFFER_ONE, ScheduleOverlapPolicy.BUFFER_ALL}


@dataclass(frozen=True)
class TriggerResult:
    """The result of a trigger."""

    outcome: Literal["started", "skipped", "buffered", "pending"]
    """`skipped` and `buffered` come from the overlap policy. `pending`: the server has not decided yet."""
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
            NotAnAgent: The schedule starts other workflows than runs.
        """
        with _server_errors(self.id):
            described = await self._schedule.describe()
        action = described.schedule.action
        if not isinstance(action, ScheduleActionStartWorkflow):
            raise NotAnAgent(self.id, "schedule")
        if action.workflow not in RUN_WORKFLOWS:
            raise NotAnAgent(self.id, f"schedule of {action.workflow}")
        return described

    async def trigger(self) -> TriggerResult:
        """Start a run now, even if the schedule is paused. The overlap policy applies. Wait seconds for the outcome."""
        before = await self.describe()
        with _server_errors(self.id):
            await self._schedule.trigger()
        for _ in range(_LOOKS):
            if (result := _trigger_result(before, await self.describe())) is not None:
                return result
            await asyncio.sleep(_BETWEEN_LOOKS_S)
        return TriggerResult("pending")

    async def pause(self, why: str) -> None:
        """Pause the schedule, so that it starts no runs at its times. `why` becomes its note. Live runs continue."""
        await self.describe()
        with _server_errors(self.id):
            await self._schedule.pause(note=clean_text(why))

    async def resume(self, why: str) -> None:
        """Resume the schedule. Runs that were due while it was paused are not started."""
        await self.describe()
        with _server_errors(self.id):
            await self._schedule.unpause(note=clean_text(why))

    async def delete(self) -> None:
        """Delete the schedule. Its runs stay, and live ones continue."""
        await self.describe()
        with _server_errors(self.id):
            await self._schedule.delete()


@contextmanager
def _server_errors(schedule_id: str) -> Generator[None]:
    try:
        yield
    except RPCError as error:
        raise schedule_error(error, schedule_id) from error


def schedule_error(error: RPCError, schedule_id: str) -> OrgaError:
    """Return the error that a user reads after the server has refused a request."""
    if error.status == RPCStatusCode.NOT_FOUND:
        return ScheduleNotFound(schedule_id)
    return OrgaError(
        f"the Temporal server answered {error.status.name.lower()}: {error_reason(error)}; see `orga doctor`"
    )


def _trigger_result(before: ScheduleDescription, now: ScheduleDescription) -> TriggerResult | None:
    """Return the change between two descriptions, or None if nothing has happened yet."""
    if now.info.num_actions > before.info.num_actions and now.info.recent_actions:
        last = now.info.recent_actions[-1].action
        if isinstance(last, ScheduleActionExecutionStartWorkflow):  # pyright: ignore[reportUnnecessaryIsInstance]
            return TriggerResult("started", last.workflow_id)
    if now.info.num_actions_skipped_overlap > before.info.num_actions_skipped_overlap:
        return TriggerResult("skipped")
    # without such a policy and a live run, the buffer holds a run that starts at once
    may_buffer = bool(now.info.running_actions) and now.schedule.policy.overlap in _BUFFERING_POLICIES
    if may_buffer and now.raw_description.info.buffer_size > before.raw_description.info.buffer_size:
        return TriggerResult("buffered")
    return None


GONE = "gone"
"""The state of a run that the server no longer keeps."""


def display_zone(name: str | None) -> ZoneInfo:
    """Return the zone for displayed times, or UTC if this machine does not know it."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True)
class ScheduledRun:
    """A run that a schedule started."""

    run_id: str
    at: datetime


@dataclass(frozen=True)
class ScheduleSummary:
    """One schedule."""

    id: str
    workflow: str
    what: str
    """The beginning of the task or goal. Empty if another program than orga created the schedule."""
    times: tuple[str, ...]
    """Cron expressions and intervals, as people write them."""
    time_zone: str
    next: tuple[datetime, ...]
    runs: tuple[ScheduledRun, ...]
    """The last runs, oldest first."""
    paused: bool
    note: str
    folder: str | None
    """The folder of the workplace of its runs, or None."""

    @property
    def kind(self) -> str:
        """The kind of run that the schedule starts: `goal` or `run`."""
        return "goal" if self.workflow == GOAL_WORKFLOW else "run"


async def all_schedules(client: Client) -> list[ScheduleSummary]:
    """Return all schedules of runs and goals, by id. A schedule that was just created may be missing.

    Raises:
        OrgaError: The server lists no schedules.
    """
    with _server_errors(""):
        listed = [schedule async for schedule in await client.list_schedules()]
    summaries = [await _listed_summary(schedule) for schedule in listed]
    return sorted((summary for summary in summaries if summary is not None), key=lambda summary: summary.id)


async def _listed_summary(listed: ScheduleListDescription) -> ScheduleSummary | None:
    schedule = listed.schedule
    action = schedule.action if schedule else None
    if schedule is None or not isinstance(action, ScheduleListActionStartWorkflow):
        return None
    if action.workflow not in RUN_WORKFLOWS:
        return None
    return _build_summary(listed.id, action.workflow, schedule, listed.info, await listed.memo())


async def schedule_summary(described: ScheduleDescription) -> ScheduleSummary:
    action = described.schedule.action
    workflow = action.workflow if isinstance(action, ScheduleActionStartWorkflow) else ""
    return _build_summary(described.id, workflow, described.schedule, described.info, await described.memo())


def duration_text(time: timedelta) -> str:
    """Return a duration as people write it. 90 seconds are `1m30s`."""
    left, parts = int(time.total_seconds()), list[str]()
    for unit, seconds in _UNITS:
        if left >= seconds:
            parts.append(f"{left // seconds}{unit}")
            left %= seconds
    return "".join(parts) or "0s"


def _build_summary(
    schedule_id: str,
    workflow: str,
    schedule: Schedule | ScheduleListSchedule,
    info: ScheduleInfo | ScheduleListInfo | None,
    memo: Mapping[str, Any],
) -> ScheduleSummary:
    spec, workplace = schedule.spec, workplace_of(memo.get(WORKPLACE_MEMO))
    recent_actions = info.recent_actions if info else ()
    return ScheduleSummary(
        id=schedule_id,
        workflow=workflow,
        what=str(memo.get(SUMMARY_MEMO, "")),
        times=_times_text(spec),
        time_zone=spec.time_zone_name or "UTC",
        next=tuple(info.next_action_times) if info else (),
        runs=tuple(
            ScheduledRun(result.action.workflow_id, result.scheduled_at)
            for result in recent_actions
            if isinstance(result.action, ScheduleActionExecutionStartWorkflow)  # pyright: ignore[reportUnnecessaryIsInstance]
        ),
        paused=schedule.state.paused,
        note=schedule.state.note or "",
        folder=workplace and workplace.folder,
    )


def _times_text(spec: ScheduleSpec) -> tuple[str, ...]:
    """Return the expressions and intervals. The server keeps only parsed times, with the expression as a comment."""
    return (
        *spec.cron_expressions,
        *(calendar.comment or "a calendar" for calendar in spec.calendars),
        *(f"every {duration_text(interval.every)}" for interval in spec.intervals),
    )


async def run_states(client: Client, runs: Sequence[ScheduledRun]) -> dict[str, str]:
    """Return the state or ending of each run by its id. It is `gone` if the server no longer keeps the run."""
    states = {run.run_id: GONE for run in runs}
    for run_id in states:
        with suppress(RunNotFound):
            run = await AgentHandle(client, run_id).describe()
            is_live = run.status == WorkflowExecutionStatus.RUNNING
            states[run_id] = state_of(run) if is_live else await read_ending(client, run)
    return states


def schedule_json(summary: ScheduleSummary, states: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the value that `--json` writes for a schedule. `states` has the states of its runs, from `run_states`."""
    zone, states = display_zone(summary.time_zone), states or {}
    runs = [{"id": run.run_id, "at": _iso(run.at, zone), "state": states.get(run.run_id)} for run in summary.runs]
    return asdict(summary) | {"kind": summary.kind, "next": [_iso(at, zone) for at in summary.next], "runs": runs}


def _iso(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).isoformat(timespec="seconds")
