"""Lists runs: finds them with the server's visibility, and adds the task and the progress of each run."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic_core import from_json
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from orga.client.config.workplace import recorded_workplace, worker_command
from orga.client.errors import OrgaError
from orga.client.history.chain import read_start
from orga.client.history.values import decode_own, decode_payloads, run_converters
from orga.client.runs.agents import AgentHandle
from orga.client.runs.endings import ending_of, read_result
from orga.client.runs.failing_tasks import FailingTask, failing_tasks
from orga.client.runs.needed_worker import NeededWorker, needed_worker
from orga.client.runs.newest import newest_runs, replaced_run_ids, visibility_literal
from orga.client.server.server_errors import error_reason
from orga.client.server.versions import Routing, routing
from orga.workflows.types import names as known
from orga.workflows.types.json_text import as_object, as_text
from orga.workflows.types.names import RUN_WORKFLOWS
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import AgentStatus
from orga.workflows.types.text import one_line

LIVE_STATE = "running"
"""The state of a live run begins with this."""

AT_ONCE = 10
"""Requests to the server at the same time."""

MAX_QUERIED_RUNS = 20
"""Live runs whose progress is queried. For other live runs, search attributes show it, up to ten iterations late."""

WAIT_S = 3.0
"""Seconds to wait for the answers of workers. After that, no status is shown, only the search attributes."""


WAITING_PHASES = frozenset({"paused", "idle"})
"""Phases in which a run waits until somebody resumes it, or sends a message to the session."""


@dataclass(frozen=True)
class RunFilter:
    """The criteria of a list."""

    running: bool = False
    agent: str | None = None
    tenant: str | None = None
    query: str | None = None
    dead_letters: bool = False

    def visibility(self) -> str:
        """Return the criteria as a Temporal visibility query."""
        parts = [
            f"WorkflowType IN ({', '.join(map(visibility_literal, RUN_WORKFLOWS))})",
            "ExecutionStatus != 'ContinuedAsNew'",
        ]
        if self.running:
            parts.append("ExecutionStatus = 'Running'")
        if self.dead_letters:
            parts.append(f"{known.DEAD_LETTERS.name} > 0")
        for key, value in ((known.AGENT, self.agent), (known.TENANT, self.tenant)):
            if value is not None:
                parts.append(f"{key.name} = {visibility_literal(value)}")
        return " AND ".join([*parts, *([f"({self.query})"] if self.query else [])])


@dataclass(frozen=True)
class ListedRun:
    """A run as a list shows it."""

    id: str
    agent: str | None
    state: str
    """The phase of a live run, or how an ended run ended."""
    iteration: int | None
    started: datetime
    cost_usd: float | None
    tenant: str | None
    task_queue: str
    """The queue that its workers poll."""
    folder: str | None = None
    """The folder that the run was started for, or None."""
    waiting: str | None = None
    """The kind of question that a live run waits for."""
    worker_command: str = "orga worker"
    """The command that starts a worker for the run."""
    dead_letters: int = 0
    """Calls that were given up and can be sent again."""
    open_circuits: Sequence[str] = ()
    """Tools that a live run does not call for a while."""
    task_fails: FailingTask | None = None
    """The failure that blocks a live run."""
    task: str = ""
    """Its task on one line, or "" if it was not looked up."""
    model_calls: int | None = None
    """The number of model calls. None if a live run does not answer, or if the number was not looked up."""
    may_be_more: bool = False
    """True if `iteration` and `cost_usd` come from a live run's search attributes, which lag by up to ten
    iterations."""


class StatusQueries:
    """Queries the statuses of runs. It looks only once for the workers of each task queue."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._routings: dict[str, Routing | None] = {}
        self.lacking: dict[str, NeededWorker] = {}
        """The workers that the runs without a worker need, by run id, on queues with deployment versions."""

    async def statuses(self, runs: Sequence[WorkflowExecution | ListedRun]) -> list[AgentStatus | None]:
        """Return the status of each run in order, or None if it gives no answer."""
        for queue in {run.task_queue for run in runs} - self._routings.keys():
            self._routings[queue] = await routing(self._client, queue)
        found: list[AgentStatus | None] = []
        for start in range(0, len(runs), AT_ONCE):
            found += await asyncio.gather(*map(self._status, runs[start : start + AT_ONCE]))
        return found

    async def _status(self, run: WorkflowExecution | ListedRun) -> AgentStatus | None:
        handle = AgentHandle(self._client, run.id)
        try:
            return await handle.status() if await self._may_answer(handle, self._routings[run.task_queue]) else None
        except Exception:  # it gives no answer that this client can decode: a codec may raise anything
            return None

    async def _may_answer(self, handle: AgentHandle, queue_routing: Routing | None) -> bool:
        if queue_routing is None:  # the server does not report its workers
            return True
        if not queue_routing.has_versions:
            return bool(queue_routing.polled)
        described = await handle.describe()
        if queue_routing.may_serve(described):
            return True
        self.lacking[handle.id] = await needed_worker(described)
        return False


async def read_statuses(client: Client, runs: Sequence[WorkflowExecution | ListedRun]) -> dict[str, AgentStatus]:
    """Return the statuses that answer in time, by the id of the run."""
    try:
        async with asyncio.timeout(WAIT_S):
            answers = await StatusQueries(client).statuses(runs)
    except (TimeoutError, RPCError):
        return {}
    return {run.id: status for run, status in zip(runs, answers, strict=True) if status}


async def listed_runs(client: Client, wanted: RunFilter, limit: int) -> list[ListedRun]:
    """Return the runs that meet the criteria, newest first.

    Executions that a rewind replaced are left out, even if they meet the criteria.

    Raises:
        InvalidInput: The server does not understand the query.
    """
    try:
        newest = await newest_runs(client, wanted.visibility(), limit, with_ended=not wanted.running)
        has_criteria = wanted != RunFilter()  # without any, the execution that replaced another one is found, too
        replaced = await replaced_run_ids(client, newest) if has_criteria else set[str]()
        found = [await listed_run(run) for run in newest if run.run_id not in replaced]
    except RPCError as error:
        if error.status != RPCStatusCode.INVALID_ARGUMENT:
            raise OrgaError(f"the server does not list runs: {error_reason(error)}; see `orga doctor`") from error
        raise InvalidInput(f"query: the server refuses it: {error.message}") from None
    failing = await failing_tasks(client, [row.id for row in found if _is_live(row)])
    stuck = f"{LIVE_STATE} (stuck)"
    return [replace(row, state=stuck, task_fails=failing[row.id]) if row.id in failing else row for row in found]


async def listed_run(run: WorkflowExecution) -> ListedRun:
    """Return a run as visibility has it."""
    home = await recorded_workplace(run)
    attributes, is_live = run.typed_search_attributes, run.status == WorkflowExecutionStatus.RUNNING
    return ListedRun(
        id=run.id,
        agent=attributes.get(known.AGENT),
        state=state_of(run),
        iteration=attributes.get(known.ITERATION),
        started=run.start_time,
        cost_usd=attributes.get(known.COST_USD),
        tenant=attributes.get(known.TENANT),
        task_queue=run.task_queue,
        folder=home and home.folder,
        worker_command=worker_command(home),
        waiting=attributes.get(known.WAITING) if is_live else None,
        dead_letters=attributes.get(known.DEAD_LETTERS) or 0,
        open_circuits=tuple(attributes.get(known.OPEN_CIRCUITS) or ()) if is_live else (),
    )


def state_of(run: WorkflowExecution) -> str:
    """Return the phase of a live run, or how a run ended."""
    attributes = run.typed_search_attributes
    if run.status == WorkflowExecutionStatus.RUNNING:
        if kind := attributes.get(known.WAITING):
            return f"{LIVE_STATE} (waits: {kind})"
        phase = attributes.get(known.PHASE)
        return f"{LIVE_STATE} ({phase})" if phase in WAITING_PHASES else LIVE_STATE
    return ending_of(run)


async def with_details(client: Client, rows: Sequence[ListedRun]) -> list[ListedRun]:
    """Return the rows with task, model calls and ending.

    A live run gets current numbers, or a mark that they may be old.
    """
    described = await _with_descriptions(client, rows)
    queried = [row for row in described if _is_live(row) and row.task_fails is None][:MAX_QUERIED_RUNS]
    statuses = await read_statuses(client, queried)
    return [_with_progress(row, statuses.get(row.id)) for row in described]


def _with_progress(row: ListedRun, status: AgentStatus | None) -> ListedRun:
    """Add the progress that a live run reports. If there is no report, the numbers of a live run may be old."""
    if status is None:
        return replace(row, may_be_more=_is_live(row))
    usage = status.usage
    return replace(row, iteration=status.iteration, cost_usd=usage.cost_usd, model_calls=usage.model_calls)


def _is_live(row: ListedRun) -> bool:
    return row.state.startswith(LIVE_STATE)


async def _with_descriptions(client: Client, rows: Sequence[ListedRun]) -> list[ListedRun]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def with_description(row: ListedRun) -> ListedRun:
        async with slots:
            try:
                run = await client.get_workflow_handle(row.id).describe()
                row = replace(row, task=await read_task(client, run))
                if (result := await read_result(client, run)) is None:
                    return row
                # the search attributes may lack the ending, as in `read_ending`
                return replace(row, state=result.termination.reason, model_calls=result.usage.model_calls)
            except Exception:  # the run was deleted meanwhile, or its values cannot be read: a codec may raise anything
                return row

    return list(await asyncio.gather(*map(with_description, rows)))


TASK_CHARS = 200
"""Characters of a task in a list. A search in the console reads no more of it."""


async def read_summary(described: WorkflowExecutionDescription) -> str:
    """Return the summary of a run, or "" if it has none or this client cannot decode it."""
    try:
        return as_text(await described.static_summary())
    except Exception:  # a codec may raise anything
        return ""


async def read_task(client: Client, described: WorkflowExecutionDescription) -> str:
    """Return the beginning of a run's task.

    It is in the run's summary. If the summary is cut, or is missing after continue-as-new, the input is read.
    """
    summary = await read_summary(described)
    if summary and not summary.endswith("…"):
        return summary
    try:
        fields = await read_input(client, described)
        return one_line(as_text(fields.get("task") or fields.get("goal")), TASK_CHARS) or summary
    except Exception:  # the server may no longer have the input, and a codec may raise anything
        if not summary:
            raise
        return summary


async def read_input(client: Client, described: WorkflowExecutionDescription) -> dict[str, Any]:
    """Return the input with which the run was started, from its first segment.

    Raises:
        UnreadableRun: The client lacks the codec of whoever started the run.
    """
    started = await read_start(client, described.id, _first_segment(described))
    own = run_converters(client, described.id).own_converter
    payloads = await decode_own(own, started.input.payloads)
    return as_object(from_json(payloads[0].data)) if payloads else {}


def _first_segment(described: WorkflowExecutionDescription) -> str:
    return described.raw_description.workflow_execution_info.first_run_id or described.run_id


_FIRST_EVENTS = 40
"""The number of events at the start of a session in which its first message is looked for."""


async def read_first_message(client: Client, workflow_id: str) -> str:
    """Return the beginning of the first message of a session, or "" if it has none yet or its history is gone."""
    own = run_converters(client, workflow_id).own_converter
    try:
        described = await client.get_workflow_handle(workflow_id).describe()
        handle = client.get_workflow_handle(workflow_id, run_id=_first_segment(described))
        async for event in handle.fetch_history_events(page_size=_FIRST_EVENTS):
            update = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
            signal = event.workflow_execution_signaled_event_attributes
            if "send" in {update.name, signal.signal_name}:
                for message in await decode_payloads(own, update.args.payloads or signal.input.payloads):
                    return one_line(as_text(as_object(from_json(message.data)).get("text")), TASK_CHARS)
            if event.event_id >= _FIRST_EVENTS:
                break
    except Exception:  # the server may no longer have the history, and a codec may raise anything
        return ""
    return ""
