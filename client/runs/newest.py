"""Finds the newest runs that match a query of the server's visibility."""

from collections.abc import Callable, Sequence
from datetime import datetime
from heapq import heappop, heappush
from typing import NamedTuple

from temporalio.client import Client, WorkflowExecution

LIVE_QUERY = "ExecutionStatus = 'Running'"
_ENDED_QUERY = "ExecutionStatus != 'Running'"

_PAGE_SIZE = 100

_RunPredicate = Callable[[WorkflowExecution], bool]


def visibility_literal(text: str) -> str:
    """Return a text as a literal of Temporal's visibility queries."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def newest_runs(
    client: Client, query: str, limit: int, *, is_wanted: _RunPredicate = lambda _: True, with_ended: bool = True
) -> list[WorkflowExecution]:
    """Return the runs that started last, live or ended, newest first.

    The server lists ended runs by their end, latest first. They are read until one ended before the earliest start that
    was found, because no later one can have started after it. `is_wanted` is a condition that the query cannot express.
    """
    newest = _NewestRuns(limit)
    async for run in client.list_workflows(f"{LIVE_QUERY} AND {query}", page_size=min(limit, _PAGE_SIZE)):
        if is_wanted(run):
            newest.add(run)
        if newest.is_full:
            break
    if with_ended:
        async for run in client.list_workflows(f"{_ENDED_QUERY} AND {query}", page_size=_PAGE_SIZE):
            if newest.is_full and run.close_time and run.close_time <= newest.earliest().at:
                break
            if is_wanted(run):
                newest.add(run)
    return newest.newest_first


async def replaced_run_ids(client: Client, runs: Sequence[WorkflowExecution]) -> set[str]:
    """Return the run ids of ended executions that a later execution replaced, for example after a rewind."""
    ended = [run for run in runs if run.close_time is not None]
    found = set[str]()
    for start in range(0, len(ended), _PAGE_SIZE):
        by_id = {run.id: run for run in ended[start : start + _PAGE_SIZE]}
        query = f"ExecutionStatus != 'ContinuedAsNew' AND WorkflowId IN ({', '.join(map(visibility_literal, by_id))})"
        async for other in client.list_workflows(query, page_size=_PAGE_SIZE):
            if other.start_time > by_id[other.id].start_time:
                found.add(by_id[other.id].run_id)
    return found


class _Start(NamedTuple):
    at: datetime
    workflow_id: str


class _NewestRuns:
    """Keeps the newest of all added runs, and only the latest execution of each workflow."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: dict[str, WorkflowExecution] = {}
        self._starts: list[_Start] = []
        """A heap, earliest start first. Starts of replaced executions are removed when they are first."""

    @property
    def is_full(self) -> bool:
        return len(self._runs) >= self._limit

    def earliest(self) -> "_Start":
        """Return the earliest start of the kept runs."""
        while True:
            start = self._starts[0]
            run = self._runs.get(start.workflow_id)
            if run is not None and run.start_time == start.at:
                return start
            heappop(self._starts)

    @property
    def newest_first(self) -> list[WorkflowExecution]:
        return sorted(self._runs.values(), key=lambda run: run.start_time, reverse=True)

    def add(self, run: WorkflowExecution) -> None:
        """Add a run. A run that was added while live may have ended since."""
        known = self._runs.get(run.id)
        if known is not None and known.start_time > run.start_time:
            return
        if known is None or known.start_time < run.start_time:
            heappush(self._starts, _Start(run.start_time, run.id))
        self._runs[run.id] = run
        if len(self._runs) > self._limit:
            del self._runs[self.earliest().workflow_id]
