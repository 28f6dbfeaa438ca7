"""The newest runs of a query: a server lists what is live before all else, and what has ended by its end."""

from collections.abc import Callable, Iterable
from datetime import datetime
from heapq import nlargest

from temporalio.client import Client, WorkflowExecution

LIVE = "ExecutionStatus = 'Running'"
ENDED = "ExecutionStatus != 'Running'"

PAGE = 100

Wanted = Callable[[WorkflowExecution], bool]


async def newest_of(
    client: Client, query: str, limit: int, *, is_wanted: Wanted = lambda _: True, with_ended: bool = True
) -> list[WorkflowExecution]:
    """Return the runs that were started last, newest first, whether they are live or not.

    Ended ones are read for as long as one of those that follow may be newer: none was started after it ended.

    Args:
        client: From `connect`.
        query: In Temporal's words.
        limit: How many.
        is_wanted: What the query cannot say.
        with_ended: False where the query is of live ones alone.
    """
    found: list[WorkflowExecution] = []
    async for run in client.list_workflows(f"{LIVE} AND {query}", page_size=min(limit, PAGE)):
        if is_wanted(run):
            found.append(run)
        if len(found) >= limit:
            break
    if not with_ended:
        return found
    async for run in client.list_workflows(f"{ENDED} AND {query}", page_size=PAGE):
        if len(found) >= limit and run.close_time and run.close_time <= min(map(_started, found)):
            break
        if is_wanted(run):
            found = _newest([*found, run], limit)
    return _newest(found, limit)


def _newest(runs: Iterable[WorkflowExecution], limit: int) -> list[WorkflowExecution]:
    return nlargest(limit, runs, key=_started)


def _started(run: WorkflowExecution) -> datetime:
    return run.start_time
