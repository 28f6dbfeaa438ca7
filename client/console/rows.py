"""The list of runs: filters, pages, counts by state, and one `Row` for each run."""

import asyncio
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from json import dumps, loads
from typing import Annotated, Literal, NamedTuple, Self, cast, get_args

from pydantic import AwareDatetime, BeforeValidator, Field
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from orga.client.config.workplace import recorded_workplace
from orga.client.console.caches import Execution
from orga.client.console.problems import Problem, refused
from orga.client.console.routes import Call, Console, ListOf, Routes
from orga.client.errors import OrgaError
from orga.client.runs.endings import read_ending
from orga.client.runs.failing_tasks import FailingTask, failing_tasks
from orga.client.runs.listing import (
    AT_ONCE,
    MAX_QUERIED_RUNS,
    listed_run,
    read_statuses,
    read_task,
)
from orga.client.runs.newest import newest_runs, replaced_run_ids, visibility_literal
from orga.client.server.server_errors import error_reason
from orga.workflows.types import names
from orga.workflows.types.control import StopReason
from orga.workflows.types.questions import QuestionKind
from orga.workflows.types.record import CheckedInput, Record, replace_fields
from orga.workflows.types.status import AgentStatus

ROUTES = Routes()

Kind = Literal["agent", "goal", "session"]
WORKFLOWS: Mapping[Kind, str] = {
    "agent": names.AGENT_WORKFLOW,
    "goal": names.GOAL_WORKFLOW,
    "session": names.SESSION_WORKFLOW,
}
KINDS: Mapping[str, Kind] = {workflow: kind for kind, workflow in WORKFLOWS.items()}

MAX_SEARCHED = 300
"""Runs that one request searches. `next` continues after these."""


class Row(Record):
    """A run as the list shows it."""

    id: str
    kind: Kind
    task: str
    agent: str | None
    state: str
    """The phase of a live run, or how a run ended."""
    waiting: str | None
    """The kind of question that it waits for."""
    iteration: int | None
    started: datetime
    ended: datetime | None
    cost_usd: float | None
    tenant: str | None
    folder: str | None
    task_queue: str
    dead_letters: int
    open_circuits: tuple[str, ...]
    may_be_more: bool
    """True if iteration and cost may be up to ten iterations old."""
    stuck: str | None
    """Why no worker can continue it, and the remedy."""
    worker_command: str


def _checked_time(given: object) -> object:
    """Refuse numbers, which would be read as seconds since 1970."""
    if isinstance(given, str) and not re.match(r"\d{4}-\d\d-\d\dT", given):
        raise ValueError("must be a time such as 2026-11-26T20:00:00Z")
    return given


Time = Annotated[AwareDatetime, BeforeValidator(_checked_time)]


class RunList(CheckedInput):
    kind: Kind | None = None
    agent: str | None = None
    phase: str | None = Field(default=None, pattern=r"^[a-z_]{1,40}$")
    """Only live runs in this phase."""
    waiting: QuestionKind | Literal["any"] | None = None
    """Only runs that wait for a person."""
    ending: str | None = Field(default=None, pattern=r"^[a-z_]{1,40}$")
    """Only runs that ended in this way, such as `completed` or `terminated`. `any`: all that ended."""
    tenant: str | None = None
    folder: str | None = None
    from_: Time | None = Field(default=None, alias="from")
    """Only runs that started then or later."""
    to: Time | None = None
    """Only runs that started before."""
    text: str | None = Field(default=None, max_length=200)
    """Only runs with this text in their id or in the beginning of their task."""
    next: str | None = Field(default=None, max_length=4_000)
    limit: int = Field(default=50, ge=1, le=200)

    @property
    def is_searched(self) -> bool:
        """True if visibility cannot check all filters, so that runs have to be read."""
        return bool(self.text) or self.folder is not None

    def without_states(self) -> Self:
        """Return the filters without those that select a state, because the counts are by state."""
        return replace_fields(self, {"phase": None, "waiting": None, "ending": None})


def run_condition(given: RunList, tenants: frozenset[str] | None) -> str:
    """Return the visibility query for the filters that visibility can check, limited to these tenants."""
    kinds = [WORKFLOWS[given.kind]] if given.kind else names.RUN_WORKFLOWS
    parts = [_is_in("WorkflowType", kinds), "ExecutionStatus != 'ContinuedAsNew'"]
    if tenants is not None:
        parts.append(_is_in(names.TENANT.name, sorted(tenants)) if tenants else "WorkflowId = ''")
    for key, value in ((names.AGENT, given.agent), (names.TENANT, given.tenant)):
        if value is not None:
            parts.append(f"{key.name} = {visibility_literal(value)}")
    if given.phase is not None:
        parts += ["ExecutionStatus = 'Running'", f"{names.PHASE.name} = {visibility_literal(given.phase)}"]
    if given.waiting is not None:
        is_kind = "IS NOT NULL" if given.waiting == "any" else f"= {visibility_literal(given.waiting)}"
        parts += ["ExecutionStatus = 'Running'", f"{names.WAITING.name} {is_kind}"]
    if given.ending is not None:
        parts.append(_ending_condition(given.ending))
    if given.from_ is not None:
        parts.append(f"StartTime >= '{given.from_.isoformat()}'")
    if given.to is not None:
        parts.append(f"StartTime < '{given.to.isoformat()}'")
    return " AND ".join(parts)


_STATUS_ENDINGS = {
    "failed": "Failed",
    "terminated": "Terminated",
    "canceled": "Canceled",
    "timed_out": "TimedOut",
}
"""Endings without a result, each with its status in visibility."""


def _ending_condition(ending: str) -> str:
    if ending == "any":
        return "ExecutionStatus != 'Running'"
    if status := _STATUS_ENDINGS.get(ending):
        return f"ExecutionStatus = '{status}'"
    return f"ExecutionStatus = 'Completed' AND {names.TERMINATION.name} = {visibility_literal(ending)}"


def _is_in(name: str, values: Sequence[str]) -> str:
    return f"{name} IN ({', '.join(map(visibility_literal, values))})"


_COUNTED_PHASES = ("preparing", "reasoning", "gating", "acting", "paused", "idle")


async def run_counts(client: Client, condition: str) -> dict[str, int]:
    """Return the number of runs by state: `all`, `running`, `waiting`, and each phase and ending that some have.

    `all` is the sum of `running` and of the endings. `waiting` and the phases are parts of `running`.
    """
    live = "ExecutionStatus = 'Running'"
    conditions = {
        "all": "",
        "running": live,
        "waiting": f"{live} AND {names.WAITING.name} IS NOT NULL",
        **{phase: f"{live} AND {names.PHASE.name} = '{phase}'" for phase in _COUNTED_PHASES},
        **{ending: _ending_condition(ending) for ending in (*get_args(StopReason), *_STATUS_ENDINGS)},
    }

    async def count(extra: str) -> int:
        return (await client.count_workflows(f"{condition} AND {extra}" if extra else condition)).count

    counts = await asyncio.gather(*map(count, conditions.values()))
    always = {"all", "running", "waiting"}
    return {name: number for name, number in zip(conditions, counts, strict=True) if number or name in always}


class _Cursor(NamedTuple):
    """The end of a page. The next page has the runs that started at `before` or earlier, but not those in `seen`."""

    before: str = ""
    seen: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str | None) -> "_Cursor":
        if not text:
            return _Cursor()
        try:
            before, seen = cast("tuple[str, list[str]]", loads(urlsafe_b64decode(text.encode())))
            return _Cursor(datetime.fromisoformat(before).isoformat(), tuple(map(str, seen)))
        except (ValueError, TypeError):
            raise refused("next", "is no `next` of a list. Leave it out to begin with the newest") from None

    def text(self) -> str:
        return urlsafe_b64encode(dumps([self.before, self.seen]).encode()).decode()

    def after(self, runs: Sequence[WorkflowExecution]) -> "_Cursor":
        at = runs[-1].start_time.isoformat()
        seen = self.seen if at == self.before else ()
        return _Cursor(at, (*seen, *(run.id for run in runs if run.start_time.isoformat() == at)))


class RowPage(ListOf[Row]):
    counts: dict[str, int] | None
    """Runs by state, over all pages, without the filters `phase`, `waiting` and `ending`. `all` is the sum of `running`
    and of the endings. `waiting` and the phases are parts of `running`. Null with `text` or `folder`."""


async def read_list(console: Console, given: RunList, tenants: frozenset[str] | None) -> RowPage:
    """Return a page of rows, newest first, with the counts of all runs that pass the filters."""
    condition = run_condition(given, tenants)
    try:
        counts = asyncio.create_task(_counts(console, given, tenants))
        page = await _matching_runs(console, given, condition)
        rows = await read_rows(console, page.runs)
        return RowPage(items=rows, next=page.next and page.next.text(), counts=await counts)
    except RPCError as error:
        if error.status == RPCStatusCode.INVALID_ARGUMENT:
            raise Problem(422, f"the server refuses the filters: {error.message}") from None
        raise OrgaError(f"the server does not list runs: {error_reason(error)}; see `orga doctor`") from error


async def _counts(console: Console, given: RunList, tenants: frozenset[str] | None) -> dict[str, int] | None:
    """Return the counts by state, or None if visibility cannot check all filters."""
    if given.is_searched:
        return None
    return await run_counts(console.client, run_condition(given.without_states(), tenants))


class _RunPage(NamedTuple):
    runs: Sequence[WorkflowExecution]
    next: _Cursor | None


async def _matching_runs(console: Console, given: RunList, condition: str) -> _RunPage:
    cursor = _Cursor.parse(given.next)
    most = MAX_SEARCHED if given.is_searched else given.limit
    if cursor.before:
        condition = f"{condition} AND StartTime <= '{cursor.before}'"
    read = await newest_runs(
        console.client,
        condition,
        most + 1,
        is_wanted=lambda run: run.id not in cursor.seen,
        with_ended=given.phase is None and given.waiting is None,
    )
    seen = read[:most]
    replaced = await replaced_run_ids(console.client, seen)
    found = [run for run in seen if run.run_id not in replaced]
    if given.is_searched:
        found = await _with_text_and_folder(console, found, given)
    if len(found) > given.limit:
        found = found[: given.limit]
        seen = seen[: seen.index(found[-1]) + 1]
    is_end = len(seen) == len(read)
    return _RunPage(found, None if is_end else cursor.after(seen))


async def _with_text_and_folder(
    console: Console, runs: Sequence[WorkflowExecution], given: RunList
) -> list[WorkflowExecution]:
    """Return the runs that pass the filters `folder` and `text`, which visibility cannot check."""
    found = list(runs)
    if given.folder is not None:
        homes = [await recorded_workplace(run) for run in found]
        found = [run for run, home in zip(found, homes, strict=True) if home and home.folder == given.folder]
    if given.text:
        wanted = given.text.casefold()
        tasks = await read_tasks(console, [Execution(run.id, run.run_id) for run in found])
        pairs = zip(found, tasks, strict=True)
        found = [run for run, task in pairs if wanted in run.id.casefold() or wanted in task.casefold()]
    return found


async def read_tasks(console: Console, executions: Sequence[Execution]) -> list[str]:
    """Return the beginning of each task, or "" if it cannot be read."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def read(execution: Execution) -> str:
        if execution in console.caches.tasks:
            return console.caches.tasks[execution]
        async with slots:
            with suppress(RPCError):
                handle = console.client.get_workflow_handle(execution.workflow_id, run_id=execution.run_id or None)
                return await _read_task(console, await handle.describe(), execution)
        return ""

    return list(await asyncio.gather(*map(read, executions)))


async def task_of(console: Console, described: WorkflowExecutionDescription) -> str:
    execution = Execution(described.id, described.run_id)
    if execution in console.caches.tasks:
        return console.caches.tasks[execution]
    return await _read_task(console, described, execution)


async def _read_task(console: Console, described: WorkflowExecutionDescription, execution: Execution) -> str:
    try:
        return console.caches.tasks.keep(execution, await read_task(console.client, described))
    except Exception:  # the server no longer has the beginning of the run, and a codec may raise anything
        return ""


async def read_rows(console: Console, runs: Sequence[WorkflowExecution]) -> list[Row]:
    """Return the rows of runs, in order. Up to 20 live runs are asked for current numbers."""
    tasks = await read_tasks(console, [Execution(run.id, run.run_id) for run in runs])
    live = [run for run in runs if run.status == WorkflowExecutionStatus.RUNNING]
    stuck = await failing_tasks(console.client, [run.id for run in live])
    asked = [run for run in live if run.id not in stuck][:MAX_QUERIED_RUNS]
    statuses = await read_statuses(console.client, asked)
    pairs = zip(runs, tasks, strict=True)
    return [await read_row(console.client, run, task, statuses.get(run.id), stuck.get(run.id)) for run, task in pairs]


async def read_row(
    client: Client,
    run: WorkflowExecution,
    task: str,
    status: AgentStatus | None = None,
    stuck: FailingTask | None = None,
) -> Row:
    """Return the row of a run from its search attributes, and from its status if there is one."""
    listed, is_live = await listed_run(run), run.status == WorkflowExecutionStatus.RUNNING
    if status:
        listed = replace(
            listed,
            agent=status.agent,
            waiting=status.waiting[0].kind if status.waiting else None,
            iteration=status.iteration,
            cost_usd=status.usage.cost_usd,
        )
    return Row(
        id=listed.id,
        kind=KINDS.get(run.workflow_type, "agent"),
        task=task,
        agent=listed.agent,
        state=_phase(run, status) if is_live else await read_ending(client, run),
        waiting=listed.waiting,
        iteration=listed.iteration,
        started=listed.started,
        ended=run.close_time,
        cost_usd=listed.cost_usd,
        tenant=listed.tenant,
        folder=listed.folder,
        task_queue=listed.task_queue,
        dead_letters=listed.dead_letters,
        open_circuits=tuple(listed.open_circuits),
        may_be_more=is_live and status is None,
        stuck=f"{stuck.problem_line}; {stuck.remedy}" if stuck else None,
        worker_command=listed.worker_command,
    )


def _phase(run: WorkflowExecution, status: AgentStatus | None) -> str:
    if status:
        return "paused" if status.paused else status.phase
    attributes = run.typed_search_attributes
    return attributes.get(names.PHASE) or ("waiting" if attributes.get(names.WAITING) else "preparing")


@ROUTES.get("/runs")
async def _list(call: Call[RunList]) -> RowPage:
    """List runs, newest first, with the number of runs in each state."""
    return await read_list(call.console, call.given, call.visitor.tenants)
