"""What visibility does not tell of a run: its task, and how far it is right now."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.cli.run_rows import LIVE, Row
from orga.client.runs.asking import Asked, Asking

AT_ONCE = 10
MOST_ASKED = 20
"""Live runs that are asked how far they are: the search attributes of the others are up to ten iterations old."""

WAIT_S = 3.0
"""For the answers of workers; without them the search attributes are shown."""


async def detailed(client: Client, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with each run's task; with the numbers of live ones as they are now, or marked as older."""
    told = await _with_tasks(client, rows)
    numbers = await _numbers(client, told)
    return [replace(row, **numbers.get(row.id, {"may_be_more": row.state.startswith(LIVE)})) for row in told]


async def _with_tasks(client: Client, rows: Sequence[Row]) -> list[Row]:
    some = asyncio.Semaphore(AT_ONCE)

    async def described(row: Row) -> Row:
        async with some:
            try:
                found = await client.get_workflow_handle(row.id).describe()
                return replace(row, task=await found.static_summary() or "")
            except RPCError:  # it has gone meanwhile
                return row

    return list(await asyncio.gather(*map(described, rows)))


async def _numbers(client: Client, rows: Sequence[Row]) -> dict[str, dict[str, float | int | None]]:
    """Return by id what live runs say of themselves; a worker that is slow, or none at all, holds nobody up."""
    live = [row for row in rows if row.state.startswith(LIVE) and row.task_fails is None][:MOST_ASKED]
    asked = [Asked(row.id, row.task_queue) for row in live]
    try:
        async with asyncio.timeout(WAIT_S):
            answers = await Asking(client).statuses(asked)
    except (TimeoutError, RPCError):
        return {}
    told = zip(live, answers, strict=True)
    return {
        row.id: {"iteration": status.iteration, "cost_usd": status.usage.cost_usd} for row, status in told if status
    }
