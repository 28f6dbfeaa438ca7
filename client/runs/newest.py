"""The newest runs of a query: a server lists what is live before all else, and what has ended by its end."""

from collections.abc import Callable
from datetime import datetime
from heapq import heappop, heappush

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
    newest = _Newest(limit)
    async for run in client.list_workflows(f"{LIVE} AND {query}", page_size=min(limit, PAGE)):
        if is_wanted(run):
            newest.add(run)
        if newest.is_full:
            break
    if with_ended:
        async for run in client.list_workflows(f"{ENDED} AND {query}", page_size=PAGE):
            if newest.is_full and run.close_time and run.close_time <= newest.earliest:
                break
            if is_wanted(run):
                newest.add(run)
    return newest.first


class _Newest:
    """The runs that were started last among those which are added, each once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: dict[str, WorkflowExecution] = {}
        self._starts: list[tuple[datetime, str]] = []
        """A heap: the earliest one first."""

    @property
    def is_full(self) -> bool:
        """Whether there are as many as are wanted."""
        return len(self._runs) >= self._limit

    @property
    def earliest(self) -> datetime:
        """When the first of them was started."""
        return self._starts[0][0]

    @property
    def first(self) -> list[WorkflowExecution]:
        """Them, newest first."""
        return sorted(self._runs.values(), key=lambda run: run.start_time, reverse=True)

    def add(self, run: WorkflowExecution) -> None:
        """Take one in; one that was added as live may have ended since."""
        if run.run_id not in self._runs:
            heappush(self._starts, (run.start_time, run.run_id))
        self._runs[run.run_id] = run
        if len(self._runs) > self._limit:
            _, run_id = heappop(self._starts)
            del self._runs[run_id]
