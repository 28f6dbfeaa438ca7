"""`orga list`: the runs that one visibility query finds, as a table or JSON."""

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size
from temporalio.client import Client
from temporalio.common import SearchAttributeKey

from orga.client.cli.connection import cli_context
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import age, terminal_line, write_json, write_note, write_result
from orga.client.errors import OrgaError
from orga.client.runs.ids import ID_PREFIXES, MIN_CHARS
from orga.client.runs.listing import (
    LIVE_STATE,
    ListedRun,
    RunFilter,
    StatusQueries,
    listed_runs,
    with_details,
)
from orga.client.server.search_attributes import SearchAttributesRefused, missing_names
from orga.workflows.types.names import AGENT, DEAD_LETTERS, TENANT
from orga.workflows.types.status import AgentStatus
from orga.workflows.types.text import full_field_text


async def require_attributes(client: Client, *needed: SearchAttributeKey[Any]) -> None:
    """Write a note about missing search attributes. Raise OrgaError if a needed one is missing."""
    lacking: list[str] = []
    with suppress(SearchAttributesRefused):  # a client that may not list the attributes can still search
        lacking = await missing_names(client)
    if not lacking:
        return
    text = f"the server lacks the search attributes {', '.join(lacking)}; register them with: orga setup"
    if any(key.name in lacking for key in needed):
        raise OrgaError(text)
    write_note(text)


GAP = "  "

TASK_CHARS = 80
"""Characters of a task in the table. A narrow terminal shows fewer."""

SHORTEST_ID = 13
"""Minimum characters of an id without its prefix. That many hold the millisecond at which a UUIDv7 was made."""

_COLUMNS = ("ID", "TASK", "AGENT", "STATE", "AGE", "ITER", "CALLS", "USD", "FOLDER")

_MIN_CELLS = {"ID": SHORTEST_ID, "TASK": 10, "AGENT": 7, "STATE": 15, "FOLDER": 6}
"""The columns that a narrow terminal cuts, and the cells that each keeps at least."""

_DROPPABLE_COLUMNS = ("FOLDER", "CALLS", "AGENT", "USD", "ITER", "AGE")
"""Columns that a narrow terminal omits, in this order."""

_READABLE_TASK_CELLS = 24
"""Cells that a task keeps until the other columns have shrunk to their minimum."""


def terminal_width() -> int | None:
    """Return the width of the terminal that the result goes to, or None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def run_table(shown: Sequence[ListedRun], now: datetime | None = None, width: int | None = None) -> list[str]:
    """Return the lines of the table.

    Args:
        width: Cells of a line. With None, all columns and whole ids are shown.
    """
    ids = [row.id for row in shown]
    id_texts = {run_id: full_field_text(run_id) for run_id in ids} if width is None else short_ids(ids)
    rows = [_cells(row, id_texts[row.id], now or datetime.now(UTC)) for row in shown]
    if width is not None:
        live_state = re.compile(rf"{LIVE_STATE} \((.*)\)")  # of a live run's state, show only what it waits for
        rows = [{**row, "STATE": live_state.sub(r"\1", row["STATE"])} for row in rows]
    columns = {name: [name, *(row[name] for row in rows)] for name in _COLUMNS}
    widths = {name: max(map(cell_len, cells)) for name, cells in columns.items()}
    if width is not None:
        widths = _fitted_widths(widths, width)
    sized_columns = ([_sized_cell(name, cell, cells) for cell in columns[name]] for name, cells in widths.items())
    return [GAP.join(line).rstrip() for line in zip(*sized_columns, strict=True)]


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Map each id to its shortest beginning that is unique among these runs, without a prefix such as `agent-`.

    A delegate's id is kept whole, because it begins with the id of its parent.
    """
    bare_ids = {run_id: _without_prefix(run_id) for run_id in sorted(set(ids))}
    return {run_id: _shortest_id(run_id, bare_ids) for run_id in bare_ids}


def _without_prefix(run_id: str) -> str:
    return next((run_id.removeprefix(prefix) for prefix in ID_PREFIXES if run_id.startswith(prefix)), run_id)


def _shortest_id(run_id: str, bare_ids: Mapping[str, str]) -> str:
    own = bare_ids[run_id]
    if any(run_id.startswith(f"{other}.") for other in bare_ids):  # a delegate
        return full_field_text(run_id)
    others = [bare for other, bare in bare_ids.items() if other != run_id and not other.startswith(f"{run_id}.")]
    for length in range(max(SHORTEST_ID, MIN_CHARS), len(own)):
        beginning = own[:length]
        if beginning == beginning.strip() and not any(other.startswith(beginning) for other in others):
            return full_field_text(beginning)
    return full_field_text(own if own not in others and len(own) >= MIN_CHARS else run_id)


def _cells(row: ListedRun, id_text: str, now: datetime) -> dict[str, str]:
    folder = "-" if row.folder is None else terminal_line(row.folder)
    more = "+" if row.may_be_more else ""
    return {
        "ID": id_text,
        "TASK": terminal_line(row.task, TASK_CHARS) or "-",
        "AGENT": full_field_text(row.agent or "-"),
        "STATE": full_field_text(row.state),
        "AGE": age(row.started, now).replace(" ", ""),
        "ITER": "-" if row.iteration is None else f"{row.iteration}{more}",
        "CALLS": "-" if row.model_calls is None else f"{row.model_calls}",
        "USD": "-" if row.cost_usd is None else f"{row.cost_usd:.4f}{more}",
        "FOLDER": "." if row.folder == str(Path.cwd()) else folder,
    }


def _fitted_widths(natural: Mapping[str, int], width: int) -> dict[str, int]:
    widths = dict(natural)
    for name in _DROPPABLE_COLUMNS:
        least = {column: min(cells, _MIN_CELLS.get(column, cells)) for column, cells in widths.items()}
        if _line_cells(least) <= width:
            break
        del widths[name]
    widths = _shrunk_widths(widths, width, {**_MIN_CELLS, "TASK": _READABLE_TASK_CELLS})
    return _shrunk_widths(widths, width, _MIN_CELLS)


def _shrunk_widths(natural: Mapping[str, int], width: int, least: Mapping[str, int]) -> dict[str, int]:
    """Return widths that fit the line, or the smallest allowed. The column with the most spare cells shrinks first."""
    widths = dict(natural)
    while (over := _line_cells(widths) - width) > 0:
        spare = {name: widths[name] - least[name] for name in least if name in widths}
        widest = max(spare, key=lambda name: spare[name])
        if spare[widest] <= 0:
            break
        widths[widest] -= min(over, max(spare[widest] // 2, 1))
    return widths


def _line_cells(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1)


def _sized_cell(name: str, cell: str, width: int) -> str:
    """Pad or cut a cell to exactly that width. A folder that is cut keeps its end, other cells their beginning."""
    if cell_len(cell) <= width:
        return set_cell_size(cell, width)
    if name != "FOLDER":
        return set_cell_size(f"{set_cell_size(cell, width - 1).rstrip()}…", width)
    while cell_len(cell) > width - 1:  # `…` takes one cell
        cell = cell[1:]
    return set_cell_size(f"…{cell}", width)


async def list_runs(
    *,
    running: Annotated[bool, typer.Option("--running", help="Only runs that have not ended.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only runs for this tenant.")] = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Only runs with dead letters, with these letters.")
    ] = False,
    query: Annotated[
        str | None, typer.Option(help="A further condition, in Temporal's visibility query language.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of runs.")] = 20,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """On a terminal, ids are shortened and texts are cut to fit the line. Every command accepts a shortened id.

    CALLS counts calls of the model, not of tools.

    Scripts should read --json.

    Example: orga list --running --agent reviewer

    Example: orga list --dead-letters

    Example: orga list --query "OrgaTermination = 'max_tokens' AND StartTime > '2026-01-01T00:00:00Z'"
    """
    needed = {AGENT: agent, TENANT: tenant, DEAD_LETTERS: dead_letters}
    statuses: dict[str, AgentStatus | None] = {}  # None if no worker answers
    async with cli_context(config) as context:
        await require_attributes(context.client, *(key for key, is_wanted in needed.items() if is_wanted))
        run_filter = RunFilter(running, agent, tenant, query, dead_letters)
        rows = await with_details(context.client, await listed_runs(context.client, run_filter, limit))
        if dead_letters:
            answers = await StatusQueries(context.client).statuses(rows)
            statuses = {row.id: status for row, status in zip(rows, answers, strict=True)}
    if json:
        write_json([_run_json(row, statuses) for row in rows])
    elif rows:
        write_result(*run_table(rows, width=terminal_width()))
        for failing in (row.task_fails for row in rows if row.task_fails):
            write_note(f"{full_field_text(failing.workflow_id)} is stuck: {failing.problem_line}; {failing.remedy}")
        if dead_letters:
            for row in rows:
                write_result("", full_field_text(row.id), *_letter_lines(row, statuses[row.id]))
    else:
        write_note('no runs found; start one with: orga run "…"')


def _run_json(row: ListedRun, statuses: Mapping[str, AgentStatus | None]) -> dict[str, Any]:
    shown = asdict(row) | {"started": row.started.isoformat()}
    del shown["worker_command"]
    if row.id not in statuses:
        return shown
    status = statuses[row.id]
    letters = None if status is None else [letter.model_dump(mode="json") for letter in status.dead_letters]
    return shown | {"letters": letters}


def _letter_lines(row: ListedRun, status: AgentStatus | None) -> list[str]:
    if status is None:
        return [f"  {row.dead_letters} dead letters; no worker answers, start one with: {row.worker_command}"]
    from orga.client.cli.shown.status_text import letter_lines  # most lists do not need this module

    lines = letter_lines(row.id, status, "  ")
    deliveries = row.dead_letters - len(status.dead_letters)
    if deliveries > 0:
        lines.append(f"  {deliveries} deliveries of its answer failed, see: orga inbox --kind delivery")
    return lines
