"""Finds the newest runs of a query. A server lists live runs first, then ended ones by the time of their end."""

from collections.abc import Callable, Sequence
from datetime import datetime
from heapq import heappop, heappush

from temporalio.client import Client, WorkflowExecution

LIVE_QUERY = "ExecutionStatus = 'Running'"
ENDED_QUERY = "ExecutionStatus != 'Running'"

PAGE_SIZE = 100

RunPredicate = Callable[[WorkflowExecution], bool]


def visibility_literal(text: str) -> str:
    """Return a text as a literal of Temporal's visibility queries."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def newest_runs(
    client: Client, query: str, limit: int, *, is_wanted: RunPredicate = lambda _: True, with_ended: bool = True
) -> list[WorkflowExecution]:
    """Return the runs that started last, live or ended, newest first.

    Ended runs are read until none of the remaining ones can be newer. No run started after its own end.

    Args:
        client: From `connect`.
        query: A Temporal visibility query.
        limit: The number of runs.
        is_wanted: A condition that the query cannot express.
        with_ended: False if the query matches only live runs.
    """
    newest = _NewestRuns(limit)
    async for run in client.list_workflows(f"{LIVE_QUERY} AND {query}", page_size=min(limit, PAGE_SIZE)):
        if is_wanted(run):
            newest.add(run)
        if newest.is_full:
            break
    if with_ended:
        async for run in client.list_workflows(f"{ENDED_QUERY} AND {query}", page_size=PAGE_SIZE):
            if newest.is_full and run.close_time and run.close_time <= newest.earliest:
                break
            if is_wanted(run):
                newest.add(run)
    return newest.newest_first


async def replaced_run_ids(client: Client, runs: Sequence[WorkflowExecution]) -> set[str]:
    """Return the run ids of ended executions that a later execution of the workflow replaced, as after a rewind."""
    ended = [run for run in runs if run.close_time is not None]
    found = set[str]()
    for start in range(0, len(ended), PAGE_SIZE):
        some = {run.id: run for run in ended[start : start + PAGE_SIZE]}
        query = f"ExecutionStatus != 'ContinuedAsNew' AND WorkflowId IN ({', '.join(map(visibility_literal, some))})"
        async for other in client.list_workflows(query, page_size=PAGE_SIZE):
            if other.start_time > some[other.id].start_time:
                found.add(some[other.id].run_id)
    return found


class _NewestRuns:
    """Keeps the runs that started last among those added, with only the latest execution of each workflow."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: dict[str, WorkflowExecution] = {}
        self._starts: list[tuple[datetime, str]] = []
        """A heap, earliest first. Entries of replaced executions stay until they come first."""

    @property
    def is_full(self) -> bool:
        """True if there are as many runs as the limit."""
        return len(self._runs) >= self._limit

    @property
    def earliest(self) -> datetime:
        """The earliest start of the runs kept."""
        return self._earliest_start[0]

    @property
    def _earliest_start(self) -> tuple[datetime, str]:
        while (first := self._starts[0]) != self._start_of(first[1]):
            heappop(self._starts)
        return first

    def _start_of(self, workflow_id: str) -> tuple[datetime, str] | None:
        run = self._runs.get(workflow_id)
        return None if run is None else (run.start_time, workflow_id)

    @property
    def newest_first(self) -> list[WorkflowExecution]:
        """The runs, newest first."""
        return sorted(self._runs.values(), key=lambda run: run.start_time, reverse=True)

    def add(self, run: WorkflowExecution) -> None:
        """Add a run. A run that was added while live may have ended since."""
        known = self._runs.get(run.id)
        if known is not None and known.start_time > run.start_time:
            return
        if known is None or known.start_time < run.start_time:
            heappush(self._starts, (run.start_time, run.id))
        self._runs[run.id] = run
        if len(self._runs) > self._limit:
            del self._runs[self._earliest_start[1]]
