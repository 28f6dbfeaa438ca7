"""Schedules for people: one row a schedule, with how its last run ended."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client

from orga.client.cli.terminal_text import on_one_line
from orga.client.errors import RunNotFound
from orga.client.runs.agents import AgentHandle
from orga.client.runs.listing import state_of
from orga.client.schedules.reading import Scheduled, Started
from orga.client.schedules.timing import zone_of
from orga.workflows.types.text import in_full

COLUMNS = 80
_LEAST = 16
_GONE = "gone"
_INDENT = 2


async def states(client: Client, runs: Sequence[Started]) -> dict[str, str]:
    """Return what each of these runs is at, or how it ended; `gone` of one that the server keeps no longer."""
    return {run.run_id: await _state(client, run.run_id) for run in runs}


async def _state(client: Client, run_id: str) -> str:
    try:
        return state_of(await AgentHandle(client, run_id).describe())
    except RunNotFound:
        return _GONE


def table(shown: Sequence[Scheduled], ended: Mapping[str, str]) -> list[str]:
    """Return a row for each schedule, and below it what it does."""
    heads = ("ID", "WHEN", "NEXT", "LAST", "ENDING")
    cells = [heads, *(_cells(one, ended) for one in shown)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    others = sum(widths) - widths[1] + 2 * (len(heads) - 1)
    widths[1] = min(widths[1], max(COLUMNS - others, _LEAST))
    head, *rows = (_row(line, widths) for line in cells)
    return [head, *(line for row, one in zip(rows, shown, strict=True) for line in (row, _what(one)))]


def when(at: datetime, zone: str) -> str:
    """Return a time in the schedule's zone; the year where it is not this one."""
    there = at.astimezone(zone_of(zone))
    return f"{there:%m-%d %H:%M}" if there.year == datetime.now(UTC).year else f"{there:%Y-%m-%d %H:%M}"


def times_of(one: Scheduled) -> str:
    """Return when it starts runs: the zone where it is not UTC, too."""
    return ", ".join(one.times) + ("" if one.time_zone == "UTC" else f" {one.time_zone}")


def as_json(one: Scheduled, ended: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a schedule as a program reads it."""
    runs = [{"id": run.run_id, "at": _iso(run.at, one), "state": (ended or {}).get(run.run_id)} for run in one.runs]
    return asdict(one) | {"kind": one.kind, "next": [_iso(at, one) for at in one.next], "runs": runs}


def _iso(at: datetime, one: Scheduled) -> str:
    return at.astimezone(zone_of(one.time_zone)).isoformat(timespec="seconds")


def _cells(one: Scheduled, ended: Mapping[str, str]) -> tuple[str, ...]:
    coming = "paused" if one.paused else when(one.next[0], one.time_zone) if one.next else "-"
    last = one.runs[-1] if one.runs else None
    past = ("-", "-") if last is None else (when(last.at, one.time_zone), ended.get(last.run_id, _GONE))
    return in_full(one.id), on_one_line(times_of(one)), coming, *past


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    cut = (on_one_line(cell, width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(cell.ljust(width) for cell, width in zip(cut, widths, strict=True)).rstrip()


def _what(one: Scheduled) -> str:
    return " " * _INDENT + on_one_line(f"{one.kind}: {one.what or one.workflow}", COLUMNS - _INDENT)
