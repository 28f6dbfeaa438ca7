"""Schedules as the server lists them: what each starts, when, and what it started last."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionResult,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleListActionStartWorkflow,
    ScheduleListDescription,
    ScheduleSpec,
)
from temporalio.service import RPCError

from orga.client.errors import RunNotFound
from orga.client.runs.agents import AgentHandle
from orga.client.runs.listing import state_of
from orga.client.schedules.create import SUMMARY_MEMO, display_zone
from orga.client.schedules.handle import schedule_error
from orga.workflows.types.input import WORKPLACE_MEMO, workplace_of
from orga.workflows.types.names import GOAL_WORKFLOW, RUN_WORKFLOWS

GONE = "gone"

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
    """The beginning of its task or goal. Empty if the schedule was not created by orga."""
    times: tuple[str, ...]
    """Expressions and intervals, as people write them."""
    time_zone: str
    next: tuple[datetime, ...]
    runs: tuple[ScheduledRun, ...]
    """The last runs, oldest first."""
    paused: bool
    note: str
    folder: str | None
    """The folder that its runs are started for, or None."""

    @property
    def kind(self) -> str:
        """The kind of run that it starts: `goal` or `run`."""
        return "goal" if self.workflow == GOAL_WORKFLOW else "run"


async def all_schedules(client: Client) -> list[ScheduleSummary]:
    """Return all schedules of runs and goals, by id. A schedule that was just created may be missing.

    Raises:
        OrgaError: The server lists no schedules.
    """
    try:
        found = [each async for each in await client.list_schedules()]
    except RPCError as error:
        raise schedule_error(error, "") from error
    ours = [(each, workflow) for each in found if (workflow := _workflow_type(each)) in RUN_WORKFLOWS]
    return sorted([await _listed_summary(each, workflow) for each, workflow in ours], key=lambda one: one.id)


async def schedule_summary(described: ScheduleDescription) -> ScheduleSummary:
    """Return the summary of a described schedule."""
    action, state, info = described.schedule.action, described.schedule.state, described.info
    workflow = action.workflow if isinstance(action, ScheduleActionStartWorkflow) else ""
    return _build_summary(
        (described.id, workflow),
        described.schedule.spec,
        (info.next_action_times, info.recent_actions),
        (state.paused, state.note),
        await described.memo(),
    )


def duration_text(time: timedelta) -> str:
    """Return a duration as people write it: `90s` is `1m30s`."""
    left, parts = int(time.total_seconds()), list[str]()
    for unit, seconds in _UNITS:
        if left >= seconds:
            parts.append(f"{left // seconds}{unit}")
            left %= seconds
    return "".join(parts) or "0s"


async def _listed_summary(each: ScheduleListDescription, workflow: str) -> ScheduleSummary:
    schedule, info = each.schedule, each.info
    return _build_summary(
        (each.id, workflow),
        schedule.spec if schedule else ScheduleSpec(),
        (info.next_action_times, info.recent_actions) if info else ((), ()),
        (schedule.state.paused, schedule.state.note) if schedule else (False, None),
        await each.memo(),
    )


def _build_summary(
    ids: tuple[str, str],
    spec: ScheduleSpec,
    times: tuple[Sequence[datetime], Sequence[ScheduleActionResult]],
    state: tuple[bool, str | None],
    memo: Mapping[str, Any],
) -> ScheduleSummary:
    (schedule_id, workflow), (next_times, past), (paused, note) = ids, times, state
    home = workplace_of(memo.get(WORKPLACE_MEMO))
    return ScheduleSummary(
        id=schedule_id,
        workflow=workflow,
        what=str(memo.get(SUMMARY_MEMO, "")),
        times=_times_text(spec),
        time_zone=spec.time_zone_name or "UTC",
        next=tuple(next_times),
        runs=tuple(
            ScheduledRun(each.action.workflow_id, each.scheduled_at)
            for each in past
            if isinstance(each.action, ScheduleActionExecutionStartWorkflow)  # pyright: ignore[reportUnnecessaryIsInstance]
        ),
        paused=paused,
        note=note or "",
        folder=home and home.folder,
    )


def _times_text(spec: ScheduleSpec) -> tuple[str, ...]:
    """Return the expressions and intervals. The server keeps an expression only as the comment of its parsed form."""
    return (
        *spec.cron_expressions,
        *(calendar.comment or "a calendar" for calendar in spec.calendars),
        *(f"every {duration_text(interval.every)}" for interval in spec.intervals),
    )


def _workflow_type(each: ScheduleListDescription) -> str:
    action = each.schedule and each.schedule.action
    return action.workflow if isinstance(action, ScheduleListActionStartWorkflow) else ""


async def run_states(client: Client, runs: Sequence[ScheduledRun]) -> dict[str, str]:
    """Return the state or ending of each run by its id; `gone` if the server does not keep it any more."""
    return {run.run_id: await _run_state(client, run.run_id) for run in runs}


async def _run_state(client: Client, run_id: str) -> str:
    try:
        return state_of(await AgentHandle(client, run_id).describe())
    except RunNotFound:
        return GONE


def schedule_json(one: ScheduleSummary, ended: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the value that `--json` writes for a schedule."""
    runs = [{"id": run.run_id, "at": _iso(run.at, one), "state": (ended or {}).get(run.run_id)} for run in one.runs]
    return asdict(one) | {"kind": one.kind, "next": [_iso(at, one) for at in one.next], "runs": runs}


def _iso(at: datetime, one: ScheduleSummary) -> str:
    return at.astimezone(display_zone(one.time_zone)).isoformat(timespec="seconds")
