"""`orga list`: the runs, by one visibility query."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from client.cli.interrupts import completed
from client.cli.options import ConfigFile, Json
from client.cli.output import json_result, note, result
from client.cli.run_rows import Filter, rows, table
from client.cli.session import session
from client.errors import OrgaError
from client.server.search_attributes import SearchAttributesRefused, missing


def list_runs(
    *,
    running: Annotated[bool, typer.Option("--running", help="Only runs that have not ended.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only runs for this tenant.")] = None,
    query: Annotated[str | None, typer.Option(help="And this, in Temporal's visibility query language.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 20,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """List runs, newest first.

    Example: orga list --running --agent reviewer

    Example: orga list --query "OrgaTermination = 'max_tokens' AND StartTime > '2026-01-01T00:00:00Z'"
    """
    return completed(_listed(Filter(running, agent, tenant, query), limit, config, as_json=json))


async def _listed(wanted: Filter, limit: int, config: Path | None, *, as_json: bool) -> int:
    async with session(config) as here:
        await _require_attributes(here.client, needed=bool(wanted.agent or wanted.tenant))
        found = await rows(here.client, wanted, limit)
    if as_json:
        json_result([asdict(row) | {"started": row.started.isoformat()} for row in found])
    elif found:
        result(table(found))
    else:
        note('there is no such run; start one with: orga run "…"')
    return 0


async def _require_attributes(client: Client, *, needed: bool) -> None:
    """Say when the server lacks what runs are found by; it is an error only where the query needs it."""
    lacking: list[str] = []
    with suppress(SearchAttributesRefused):  # who may not list them can still search
        lacking = await missing(client)
    if not lacking:
        return
    remedy = f"the server lacks the search attributes {', '.join(lacking)}; register them with: orga setup"
    if needed:
        raise OrgaError(remedy)
    note(remedy)
