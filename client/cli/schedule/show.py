"""`orga schedule list` and `orga schedule show`: the next runs of schedules, and how the last ones ended."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import Client, ScheduleActionStartWorkflow, ScheduleDescription

from orga.client.cli.connection import cli_context
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import on_one_line, write_json, write_note, write_result
from orga.client.schedules.create import NO_TIME, OVERLAPS, display_zone
from orga.client.schedules.handle import ScheduleHandle
from orga.client.schedules.reading import (
    GONE,
    ScheduleSummary,
    all_schedules,
    duration_text,
    run_states,
    schedule_json,
    schedule_summary,
)
from orga.workflows.types.text import full_field_text

COLUMNS = 80
_MIN_WHEN_CELLS = 16
_INDENT = 2


def schedule_table(shown: Sequence[ScheduleSummary], ended: Mapping[str, str]) -> list[str]:
    """Return the lines of a table with two lines for each schedule: its times, and what it starts."""
    heads = ("ID", "WHEN", "NEXT", "LAST", "ENDING")
    cells = [heads, *(_cells(one, ended) for one in shown)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    others = sum(widths) - widths[1] + 2 * (len(heads) - 1)
    widths[1] = min(widths[1], max(COLUMNS - others, _MIN_WHEN_CELLS))
    head, *rows = (_row(line, widths) for line in cells)
    return [head, *(line for row, one in zip(rows, shown, strict=True) for line in (row, _subject_line(one)))]


def zoned_time_text(at: datetime, zone: str) -> str:
    """Return a time in the schedule's zone, with the year if it is not the current one."""
    there = at.astimezone(display_zone(zone))
    return f"{there:%m-%d %H:%M}" if there.year == datetime.now(UTC).year else f"{there:%Y-%m-%d %H:%M}"


def schedule_times_text(one: ScheduleSummary) -> str:
    """Return the schedule's times, with the zone unless it is UTC."""
    return ", ".join(one.times) + ("" if one.time_zone == "UTC" else f" {one.time_zone}")


def _cells(one: ScheduleSummary, ended: Mapping[str, str]) -> tuple[str, ...]:
    coming = "paused" if one.paused else zoned_time_text(one.next[0], one.time_zone) if one.next else "-"
    last = one.runs[-1] if one.runs else None
    past = ("-", "-") if last is None else (zoned_time_text(last.at, one.time_zone), ended.get(last.run_id, GONE))
    return full_field_text(one.id), on_one_line(schedule_times_text(one)), coming, *past


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    cut = (on_one_line(cell, width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(cell.ljust(width) for cell, width in zip(cut, widths, strict=True)).rstrip()


def _subject_line(one: ScheduleSummary) -> str:
    return " " * _INDENT + on_one_line(f"{one.kind}: {one.what or one.workflow}", COLUMNS - _INDENT)


_MAX_NEXT_RUNS = 3


def list_schedules(*, json: Json = False, config: ConfigFile = None) -> int:
    """List schedules with their times, each in its own time zone, and how the last run ended.

    Example: orga schedule list --json
    """
    return run_interruptible(_list(config, as_json=json))


def show(
    schedule: Annotated[
        str,
        typer.Argument(metavar="ID", help="The schedule's id. `orga schedule list` shows it.", show_default=False),
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show a schedule: its times, its policies, and its last runs with ids and endings.

    Example: orga schedule show morning
    """
    return run_interruptible(_show(schedule, config, as_json=json))


async def _list(config: Path | None, *, as_json: bool) -> int:
    async with cli_context(config) as here:
        found = await all_schedules(here.client)
        ended = await run_states(here.client, [one.runs[-1] for one in found if one.runs])
    if as_json:
        write_json([schedule_json(one, ended) for one in found])
    elif found:
        write_result(*schedule_table(found, ended))
    else:
        write_note('there is no schedule; create one with: orga schedule create ID --every 1d --task "…"')
    return 0


async def _show(schedule: str, config: Path | None, *, as_json: bool) -> int:
    async with cli_context(config) as here:
        described = await ScheduleHandle(here.client, schedule).describe()
        one = await schedule_summary(described)
        ended = await run_states(here.client, one.runs)
        begins_with = await _decode_input(here.client, described)
    if as_json:
        write_json(
            {**schedule_json(one, ended), **_settings(described), **_run_counts(described), "input": begins_with}
        )
    else:
        write_result(*_schedule_lines(one, described, ended))
    return 0


def _schedule_lines(one: ScheduleSummary, described: ScheduleDescription, ended: dict[str, str]) -> list[str]:
    settings, counts = _settings(described), _run_counts(described)
    end = described.schedule.spec.end_at
    lines = [
        f"{full_field_text(one.id)}  {one.kind}" + ("  (paused)" if one.paused else ""),
        f"  what: {on_one_line(one.what or one.workflow, 400)}",
        f"  when: {on_one_line(schedule_times_text(one), 400)}"
        + (f", delayed by up to {settings['jitter']}" if settings["jitter"] != "0s" else "")
        + (f", until {zoned_time_text(end, one.time_zone)}" if end else ""),
        f"  overlap: {settings['overlap']}, catch-up: {settings['catch_up']}",
        f"  queue: {full_field_text(str(settings['task_queue']))}"
        + (f", folder: {on_one_line(one.folder, 400)}" if one.folder else ""),
        *([f"  note: {on_one_line(one.note, 400)}"] if one.note else []),
    ]
    coming = ", ".join(zoned_time_text(at, one.time_zone) for at in one.next[:_MAX_NEXT_RUNS]) or "none"
    lines.append(f"  next: {'none while it is paused' if one.paused else coming}")
    lines.append("  runs: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    return [
        *lines,
        *(
            f"  {zoned_time_text(run.at, one.time_zone)}  {full_field_text(run.run_id)}  {ended[run.run_id]}"
            for run in one.runs[::-1]
        ),
    ]


def _settings(described: ScheduleDescription) -> dict[str, Any]:
    schedule, action = described.schedule, described.schedule.action
    named = {policy: name for name, policy in OVERLAPS.items()}
    return {
        "overlap": named.get(schedule.policy.overlap, "skip"),
        "catch_up": duration_text(schedule.policy.catchup_window or NO_TIME),
        "jitter": duration_text(schedule.spec.jitter or NO_TIME),
        "end": schedule.spec.end_at and schedule.spec.end_at.isoformat(timespec="seconds"),
        "task_queue": action.task_queue if isinstance(action, ScheduleActionStartWorkflow) else "",
    }


def _run_counts(described: ScheduleDescription) -> dict[str, int]:
    info = described.info
    return {
        "started": info.num_actions,
        "skipped": info.num_actions_skipped_overlap,
        "missed": info.num_actions_missed_catchup_window,
    }


async def _decode_input(client: Client, described: ScheduleDescription) -> Any:
    """Return the input of each run, or None if it cannot be read."""
    action = described.schedule.action
    if not isinstance(action, ScheduleActionStartWorkflow) or len(action.args) != 1:
        return None
    return (await client.data_converter.decode(action.args))[0]  # pyright: ignore[reportArgumentType]
