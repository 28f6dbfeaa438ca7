"""Reads rows, the inbox and the state of a run for the feeds of the console, in the form that the interface has."""

from collections.abc import Sequence
from typing import Any

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from orga.client.console.doors import Visitor
from orga.client.console.routes import Console, visible_run
from orga.client.console.rows import Row, RunList, read_rows, run_condition, run_counts
from orga.client.console.snapshots import read_snapshot, with_controls_for
from orga.client.console.stream.feeds import ListedRuns
from orga.client.console.waits import Wait, read_inbox
from orga.client.journal.run_view import RunView
from orga.client.journal.timeline_reader import timelines_of
from orga.client.journal.timeline_records import IterationRecord
from orga.client.runs.agents import AgentHandle
from orga.client.runs.failing_tasks import failing_task
from orga.client.runs.inbox import WAITING_RUNS_QUERY
from orga.client.runs.newest import newest_runs, replaced_run_ids
from orga.client.server.versions import may_be_served
from orga.workflows.types.status import JournalEntry

WINDOW = 100
"""The newest runs that the list shows."""
MAX_LIVE = 200
"""Older live runs that the list shows in addition."""
FULL_LOOK = 5
"""Reads after which everything is read again, because visibility does not show all changes of a live run."""

NOT_IN_STATE = frozenset({"live", "cursor"})
"""Keys of a snapshot that a stream sends in other events."""


Tenants = frozenset[str] | None
"""The tenants whose runs exist for a viewer. None means all runs."""


class Sources:
    """The readers for the feeds of one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.questions = 0
        """The number of questions that were asked or decided in runs that are followed."""

    @property
    def client(self) -> Client:
        return self._console.client

    def rows(self, tenants: Tenants) -> "RowReader":
        return RowReader(self._console, tenants)

    def waits(self, tenants: Tenants) -> "InboxReader":
        return InboxReader(self, self._console, tenants)

    def note_question(self) -> None:
        """Note that a question was asked or decided, for the inbox."""
        self.questions += 1

    async def state(self, run_id: str, view: RunView) -> dict[str, Any]:
        """Return the data of the event `state`, for a visitor with all rights."""
        snapshot = await read_snapshot(self._console, await AgentHandle(self.client, run_id).describe(), view)
        return {"run": run_id, **{key: value for key, value in snapshot.items() if key not in NOT_IN_STATE}}

    async def is_current(self, run_id: str, state: dict[str, Any]) -> bool:
        """Return whether the state still shows correctly if the run has a worker, and if the run is stuck."""
        described = await AgentHandle(self.client, run_id).describe()
        is_stuck = await failing_task(self.client, described) is not None
        has_worker = await may_be_served(self.client, described)
        return (has_worker, is_stuck) == (state["worker"]["present"], state["stuck"] is not None)

    def state_for(self, visitor: Visitor, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state with the controls that this visitor has."""
        return with_controls_for(visitor, state, read_only=self._console.doors.read_only)

    def record(self, run_id: str, entry: JournalEntry) -> IterationRecord | None:
        """Return the current timeline record that has an entry, or None if it is not known."""
        return timelines_of(self.client).live_record(run_id, entry)

    async def check_visible(self, visitor: Visitor, run_id: str) -> None:
        """Raise RunNotFound if the run does not exist for the visitor."""
        await visible_run(self.client, visitor, run_id)


class RowReader:
    """Reads the rows of the list. A row is read again if visibility shows a change, and every fifth time."""

    def __init__(self, console: Console, tenants: Tenants) -> None:
        self._console = console
        self._condition = run_condition(RunList(), tenants)
        self._known: dict[str, tuple[str, Row]] = {}
        """By workflow id: what visibility showed of the run, and the row."""
        self._counts: dict[str, int] = {}
        self._looks = 0

    async def __call__(self) -> ListedRuns:
        client, is_full = self._console.client, self._looks % FULL_LOOK == 0
        self._looks += 1
        newest = await newest_runs(client, self._condition, WINDOW + 1)
        runs = {run.id: run for run in newest[:WINDOW]}
        if has_older := len(newest) > WINDOW:
            live = await newest_runs(client, self._condition, MAX_LIVE, with_ended=False)
            runs |= {run.id: run for run in live}
        shown = {id: _visible_values(run) for id, run in runs.items()}

        def is_outdated(run: WorkflowExecution) -> bool:
            known_values, _ = self._known.get(run.id, ("", None))
            return known_values != shown[run.id] or (is_full and run.status == WorkflowExecutionStatus.RUNNING)

        changed = [run for run in runs.values() if is_outdated(run)]
        if changed or self._known.keys() - runs.keys() or is_full:
            self._counts = await run_counts(client, self._condition)
        replaced = await replaced_run_ids(client, changed)
        rows = await read_rows(self._console, [run for run in changed if run.run_id not in replaced])
        known = self._known | {row.id: (shown[row.id], row) for row in rows}
        self._known = {id: known[id] for id in runs if id in known}
        return ListedRuns([row for _, row in self._known.values()], self._counts, has_older)


def _visible_values(run: WorkflowExecution) -> str:
    """Return the values of a run in visibility that can change."""
    attributes = run.raw_info.search_attributes.SerializeToString(deterministic=True)
    return repr((run.run_id, run.status, attributes))


class InboxReader:
    """Reads the inbox. Runs are asked only after a change in visibility, after a decision, and every fifth time."""

    def __init__(self, sources: Sources, console: Console, tenants: Tenants) -> None:
        self._sources, self._console, self._tenants = sources, console, tenants
        self._shown: object = None
        self._waits: Sequence[Wait] = ()
        self._looks = 0

    async def __call__(self) -> Sequence[Wait]:
        client = self._console.client
        waiting = sorted([_visible_values(run) async for run in client.list_workflows(WAITING_RUNS_QUERY)])
        # the last value changes at every fifth look
        shown = (waiting, self._sources.questions, self._looks // FULL_LOOK)
        self._looks += 1
        if shown != self._shown:
            self._waits, self._shown = await read_inbox(self._console, self._tenants), shown
        return self._waits
