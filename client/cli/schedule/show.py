"""`orga schedule list` and `orga schedule show`: what comes, and what came of it."""

from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import Client, ScheduleActionStartWorkflow, ScheduleDescription

from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.schedule.rows import as_json as shown
from orga.client.cli.schedule.rows import states, table, times_of, when
from orga.client.cli.session import session
from orga.client.cli.terminal_text import on_one_line
from orga.client.schedules.handle import ScheduleHandle
from orga.client.schedules.reading import Scheduled, length, scheduled, schedules
from orga.client.schedules.timing import NO_TIME, OVERLAPS
from orga.workflows.types.text import in_full

_COMING = 3


def list_schedules(*, json: Json = False, config: ConfigFile = None) -> int:
    """List schedules: when each starts runs, in its own time zone, and how the last one ended.

    Example: orga schedule list --json
    """
    return completed(_list(config, as_json=json))


def show(
    schedule: Annotated[
        str,
        typer.Argument(metavar="ID", help="The schedule's id; `orga schedule list` shows them.", show_default=False),
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show a schedule: its times, its policies, its last runs with their ids and endings.

    Example: orga schedule show morning
    """
    return completed(_show(schedule, config, as_json=json))


async def _list(config: Path | None, *, as_json: bool) -> int:
    async with session(config) as here:
        found = await schedules(here.client)
        ended = await states(here.client, [one.runs[-1] for one in found if one.runs])
    if as_json:
        json_result([shown(one, ended) for one in found])
    elif found:
        result(*table(found, ended))
    else:
        note('there is no schedule; make one with: orga schedule create ID --every 1d --task "…"')
    return 0


async def _show(schedule: str, config: Path | None, *, as_json: bool) -> int:
    async with session(config) as here:
        described = await ScheduleHandle(here.client, schedule).describe()
        one = await scheduled(described)
        ended = await states(here.client, one.runs)
        begins_with = await _input(here.client, described)
    if as_json:
        json_result({**shown(one, ended), **_settings(described), **_counts(described), "input": begins_with})
    else:
        result(*_lines(one, described, ended))
    return 0


def _lines(one: Scheduled, described: ScheduleDescription, ended: dict[str, str]) -> list[str]:
    settings, counts = _settings(described), _counts(described)
    end = described.schedule.spec.end_at
    lines = [
        f"{in_full(one.id)}  {one.kind}" + ("  (paused)" if one.paused else ""),
        f"  what: {on_one_line(one.what or one.workflow, 400)}",
        f"  when: {on_one_line(times_of(one), 400)}"
        + (f", later by up to {settings['jitter']}" if settings["jitter"] != "0s" else "")
        + (f", until {when(end, one.time_zone)}" if end else ""),
        f"  overlap: {settings['overlap']}, catch-up: {settings['catch_up']}",
        f"  queue: {in_full(str(settings['task_queue']))}"
        + (f", folder: {on_one_line(one.folder, 400)}" if one.folder else ""),
        *([f"  note: {on_one_line(one.note, 400)}"] if one.note else []),
    ]
    coming = ", ".join(when(at, one.time_zone) for at in one.next[:_COMING]) or "none"
    lines.append(f"  next: {'none while it is paused' if one.paused else coming}")
    lines.append("  runs: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    return [
        *lines,
        *(f"  {when(run.at, one.time_zone)}  {in_full(run.run_id)}  {ended[run.run_id]}" for run in one.runs[::-1]),
    ]


def _settings(described: ScheduleDescription) -> dict[str, Any]:
    schedule, action = described.schedule, described.schedule.action
    named = {policy: name for name, policy in OVERLAPS.items()}
    return {
        "overlap": named.get(schedule.policy.overlap, "skip"),
        "catch_up": length(schedule.policy.catchup_window or NO_TIME),
        "jitter": length(schedule.spec.jitter or NO_TIME),
        "end": schedule.spec.end_at and schedule.spec.end_at.isoformat(timespec="seconds"),
        "task_queue": action.task_queue if isinstance(action, ScheduleActionStartWorkflow) else "",
    }


def _counts(described: ScheduleDescription) -> dict[str, int]:
    info = described.info
    return {
        "started": info.num_actions,
        "skipped": info.num_actions_skipped_overlap,
        "missed": info.num_actions_missed_catchup_window,
    }


async def _input(client: Client, described: ScheduleDescription) -> Any:
    """Return what each run begins with; None where it cannot be read."""
    action = described.schedule.action
    if not isinstance(action, ScheduleActionStartWorkflow) or len(action.args) != 1:
        return None
    return (await client.data_converter.decode(action.args))[0]  # pyright: ignore[reportArgumentType]
