"""`orga list`: the runs, by one visibility query."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import Client

from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.required_attributes import require_attributes
from orga.client.cli.run_table import table, terminal_width
from orga.client.cli.session import session
from orga.client.runs.asking import Asked, Asking
from orga.client.runs.listing import Filter, ListedRun, detailed, rows
from orga.workflows.types.names import AGENT, DEAD_LETTERS, TENANT
from orga.workflows.types.status import AgentStatus
from orga.workflows.types.text import in_full


def list_runs(
    *,
    running: Annotated[bool, typer.Option("--running", help="Only runs that have not ended.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only runs for this tenant.")] = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Only runs with calls that were given up, and those calls.")
    ] = False,
    query: Annotated[str | None, typer.Option(help="And this, in Temporal's visibility query language.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 20,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """List runs, newest first: what they are for, where they stand, what they cost, in which folder.

    A terminal shows the beginning of each id, which every command takes for it, and cuts what does not fit. Elsewhere
    ids and texts are whole; scripts read --json.

    Example: orga list --running --agent reviewer

    Example: orga list --dead-letters

    Example: orga list --query "OrgaTermination = 'max_tokens' AND StartTime > '2026-01-01T00:00:00Z'"
    """
    return completed(_list(Filter(running, agent, tenant, query, dead_letters), limit, config, as_json=json))


async def _list(wanted: Filter, limit: int, config: Path | None, *, as_json: bool) -> int:
    needed = {AGENT: wanted.agent, TENANT: wanted.tenant, DEAD_LETTERS: wanted.dead_letters}
    statuses: Statuses = {}
    async with session(config) as here:
        await require_attributes(here.client, *(key for key, is_wanted in needed.items() if is_wanted))
        found = await detailed(here.client, await rows(here.client, wanted, limit))
        if wanted.dead_letters:
            statuses = await _statuses(here.client, found)
    if as_json:
        json_result([_json(row, statuses) for row in found])
    elif found:
        result(*table(found, width=terminal_width()))
        for failing in (row.task_fails for row in found if row.task_fails):
            note(f"{in_full(failing.workflow_id)} is stuck: {failing.told}; {failing.way_out}")
        for row in found if wanted.dead_letters else ():
            result("", in_full(row.id), *_letter_lines(row, statuses[row.id]))
    else:
        note('there is no such run; start one with: orga run "…"')
    return 0


Statuses = dict[str, AgentStatus | None]
"""By run; None where no worker answers."""


async def _statuses(client: Client, found: Sequence[ListedRun]) -> Statuses:
    statuses = await Asking(client).statuses([Asked(row.id, row.task_queue) for row in found])
    return {row.id: status for row, status in zip(found, statuses, strict=True)}


def _json(row: ListedRun, statuses: Statuses) -> dict[str, Any]:
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
    from orga.client.cli.status_lines import letter_lines  # with all that words a status

    others = row.dead_letters - len(status.dead_letters)
    lacking = [f"  {others} deliveries of its answer failed, see: orga inbox --kind delivery"] if others > 0 else []
    return [*letter_lines(row.id, status, "  "), *lacking]
