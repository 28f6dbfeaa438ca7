"""The snapshot of one run: its state, budgets, waits, plan, circuits, result, and what can be done to it now.

The state of a live run is the answer of its worker to a query. Without a worker, and for a run that ended without a
result, the journal is read.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from orga.client.console.actions import ACTIONS, Situation
from orga.client.console.caches import Beginning, Execution, KnownView
from orga.client.console.doors import Visitor
from orga.client.console.routes import Call, Console, NoParameters, Routes
from orga.client.console.rows import Row, read_row, task_of
from orga.client.console.waits import Wait, status_waits, viewed_waits, with_contexts
from orga.client.errors import NoAnswer, OrgaError
from orga.client.journal import event_types as on
from orga.client.journal.event_types import read_event
from orga.client.journal.reading import read_journal
from orga.client.journal.run_view import RunView
from orga.client.journal.watcher import activities_in_flight
from orga.client.runs.agents import STARTED_BY_MEMO, AgentHandle
from orga.client.runs.endings import read_result
from orga.client.runs.failing_tasks import FailingTask, failing_task
from orga.client.runs.listing import WAIT_S
from orga.client.runs.needed_worker import needed_worker
from orga.client.server.versions import may_be_served
from orga.workflows.types.goals.pursuit import GoalResult
from orga.workflows.types.json_text import as_object, as_text
from orga.workflows.types.limits import LIMITS, Budgets
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.record import Record
from orga.workflows.types.status import AgentResult, AgentStatus
from orga.workflows.types.tool_calls.delegation import Child, delegate_activity_id

ROUTES = Routes()


class BudgetUse(Record):
    name: str
    used: float
    limit: float | None
    unit: str


class StepRow(Record):
    id: str
    skill: str = ""
    goal: str = ""
    depends_on: tuple[str, ...] = ()
    status: str = "open"
    score: float | None = None
    error: str | None = None
    place: str | None = None
    delegate: str | None = None
    """The id of the delegated run that carries it out, while it is live."""


class PlanView(Record):
    round: int
    steps: tuple[StepRow, ...]


class ChildRun(Record):
    id: str
    agent: str
    state: str


class Circuit(Record):
    name: str
    state: str
    failures: int


class Letter(Record):
    id: str
    tool: str
    error: str
    at: datetime


class Live(Record):
    """A model or tool call in flight."""

    activity_id: str
    name: str
    attempt: int
    text: str
    text_length: int
    thinking: str
    thinking_length: int
    failure: str
    since: datetime | None
    retry_at: datetime | None
    run: str


class Worker(Record):
    present: bool
    command: str


class Links(Record):
    parent: str | None
    origin: str | None
    """The run that this one is a fork of."""
    origin_iteration: int | None
    """The last iteration that it shares with its origin."""
    temporal_ui: str | None


class AvailableAction(Record):
    """An action, and whether it makes sense now."""

    kind: Annotated[str, Field(json_schema_extra={"enum": list(ACTIONS)})]
    enabled: bool
    why: str


class Snapshot(Row):
    """Everything about a run at one moment."""

    model: str | None
    model_in_effect: str | None
    reason: str | None
    """Why it ended."""
    detail: str | None
    phase: str
    paused: bool
    started_by: str | None
    budgets: tuple[BudgetUse, ...]
    usage: UsageTotals | None
    waits: tuple[Wait, ...]
    plan: PlanView | None
    trend: str | None
    children: tuple[ChildRun, ...]
    circuits: tuple[Circuit, ...]
    dead_letters: tuple[Letter, ...]  # pyright: ignore[reportIncompatibleVariableOverride] - a list shows their number
    live: tuple[Live, ...]
    worker: Worker
    links: Links
    result: dict[str, Any] | None
    controls: tuple[AvailableAction, ...]
    guidance: str
    """The guidance that a fork was started with."""
    cursor: str
    """The position in the history that the snapshot shows, in the form of a timeline's cursor."""


async def read_snapshot(
    console: Console, described: WorkflowExecutionDescription, view: RunView | None = None
) -> dict[str, Any]:
    """Return the snapshot of a run as JSON values. `with_controls_for` adapts it to a visitor.

    `view` is the run as its journal shows it now, if a stream follows the run.
    """
    facts = await _read_facts(console, described, view)
    status, view, result = facts.status, facts.view, facts.result
    task = await task_of(console, described)
    row = await read_row(console.client, described, task, status, facts.failing)
    state, is_paused, waits = row.state, False, list[Wait]()
    if status:
        is_paused, waits = status.paused, status_waits(row.id, task, status)
    elif view and row.ended is None:
        state = "paused" if view.paused else view.phase
        is_paused, waits = view.paused, viewed_waits(row.id, task, row.agent, view.questions)
    phase = state if row.ended is None else "done"
    plan_data = _plan_data(facts)
    plan = _plan(plan_data, status.children if status else ())
    now = Situation(
        kind=row.kind,
        is_live=row.ended is None,
        is_paused=is_paused,
        wait_kinds=frozenset(wait.kind for wait in waits),
        has_plan=plan is not None,
        letters=row.dead_letters,
        is_turn_open=row.kind == "session" and phase != "idle",
    )
    started, setup = facts.beginning
    model = (status.model if status else None) or (setup.model if setup else None)
    answer = status or result
    origin = as_object(started.forked_from) if started else {}
    snapshot: dict[str, Any] = {
        **row.model_dump(),
        "state": state,
        "iteration": view.iteration if view and view.last else row.iteration,
        "model": model,
        "model_in_effect": model,
        **_ending(row, view, result),
        "phase": phase,
        "paused": is_paused,
        "started_by": as_text(await described.memo_value(STARTED_BY_MEMO, "")) or None,
        "budgets": _budgets(status.budgets) if status else (),
        "usage": answer and answer.usage,
        "waits": await with_contexts(console, waits),
        "plan": plan,
        "trend": plan_data.get("trend") or None,
        "children": [
            ChildRun(id=child.workflow_id, agent=child.agent, state="waiting" if child.held else "running")
            for child in (status.children if status else ())
        ],
        "circuits": [
            Circuit(name=name, state=each.state, failures=each.failures)
            for name, each in (status.breakers if status else {}).items()
        ],
        "dead_letters": [
            Letter(id=each.letter_id, tool=each.call.name, error=each.error, at=each.at)
            for each in (status.dead_letters if status else ())
        ],
        "live": [
            Live.model_validate(each.model_dump()) for each in await activities_in_flight(console.client, described)
        ],
        "worker": Worker(present=facts.has_worker, command=(await needed_worker(described)).command),
        "links": Links(
            parent=described.parent_id,
            origin=as_text(origin.get("workflow_id")) or None,
            origin_iteration=origin.get("iteration"),
            temporal_ui=console.connection.link(described.id),
        ),
        "result": result and result.model_dump(mode="json"),
        "guidance": started.guidance if started else "",
        "cursor": f"{described.run_id}:{described.history_length}",
        "controls": controls(now),
    }
    return Snapshot.model_validate(snapshot).model_dump(mode="json")


class _Facts(NamedTuple):
    """The parts of a run that were read. Exactly one of `status`, `result` and `view` is set."""

    has_worker: bool
    failing: FailingTask | None
    status: AgentStatus | None
    """The answer of a live run."""
    result: AgentResult | None
    view: RunView | None
    """The run as its journal shows it, if it gives no answer or ended without a result."""
    beginning: Beginning


async def _read_facts(console: Console, described: WorkflowExecutionDescription, view: RunView | None) -> _Facts:
    client, run = console.client, AgentHandle(console.client, described.id)
    has_worker = await may_be_served(client, described)
    failing, status = None, None
    if described.status == WorkflowExecutionStatus.RUNNING:
        failing = await failing_task(client, described)
        if has_worker and failing is None:
            with suppress(NoAnswer, TimeoutError):
                async with asyncio.timeout(WAIT_S if view else None):
                    status = await run.status()
            if status is None:  # the run's workflow task may have begun to fail meanwhile
                failing = await failing_task(client, await run.describe())
    result = await read_result(client, described)
    if status is not None or result is not None:
        view = None
    elif view is None:
        view = await _read_view(console, described)
    return _Facts(has_worker, failing, status, result, view, await _read_beginning(console, described))


def _ending(row: Row, view: RunView | None, result: AgentResult | None) -> dict[str, str | None]:
    """Return the fields about the end of a run."""
    if result is not None:
        return {"reason": result.termination.reason, "detail": result.termination.detail}
    if row.ended is None:
        return {"reason": None, "detail": None}
    return {"reason": row.state, "detail": view.ending.detail if view and view.ending else ""}


async def _read_beginning(console: Console, described: WorkflowExecutionDescription) -> Beginning:
    """Return the first events of the journal. The rest of it is not read."""
    execution = Execution(described.id, described.run_id)
    if execution in console.caches.beginnings:
        return console.caches.beginnings[execution]
    started: on.Started | None = None
    with suppress(RPCError, OrgaError):
        async for entry in read_journal(console.client, described.id):
            event = read_event(entry)
            if isinstance(event, on.Started):
                started = event
            elif isinstance(event, on.Prepared):
                return console.caches.beginnings.keep(execution, Beginning(started, event))
            if entry.iteration > 1:
                break
    return Beginning(started)


async def _read_view(console: Console, described: WorkflowExecutionDescription) -> RunView:
    """Return the run as its whole journal shows it. The journal is read again only if the history has grown."""
    known = console.caches.views.get(described.id)
    version = (described.run_id, described.history_length)
    if known and known.version == version:
        return known.view
    view = RunView()
    async for entry in read_journal(console.client, described.id):
        view.take(entry)
    console.caches.views.keep(described.id, KnownView(version, view))
    return view


_UNITS = {"max_cost_usd": "usd", "timeout_s": "s"}
"""Units of the limits that are no numbers of things."""


def _budgets(budgets: Budgets) -> list[BudgetUse]:
    """Return each limit and its use. Limits that are not set are left out, because their use is not known."""
    found: list[BudgetUse] = []
    for limit in LIMITS:
        most, rest = getattr(budgets, limit.key), getattr(budgets, limit.rest)
        if most is not None and rest is not None:
            used = max(round(most - rest, 6), 0)
            found.append(BudgetUse(name=limit.key, used=used, limit=most, unit=_UNITS.get(limit.key, limit.noun)))
    return found


def _plan_data(facts: _Facts) -> dict[str, Any]:
    """Return the plan of a goal as its status has it. It is empty if there is no plan."""
    if facts.status is not None:
        return as_object(facts.status.plan)
    if facts.view is not None:
        return facts.view.plan.as_status() or {}
    if isinstance(facts.result, GoalResult):
        return {"rounds": facts.result.rounds, "steps": [step.model_dump() for step in facts.result.steps]}
    return {}


def _plan(data: Mapping[str, Any], children: Sequence[Child]) -> PlanView | None:
    if not data.get("steps"):
        return None
    steps = [as_object(step) for step in data["steps"]]
    delegates = _delegates_by_step(steps, children)
    return PlanView(round=int(data.get("rounds") or 0), steps=tuple(_step(step, delegates) for step in steps))


def _delegates_by_step(steps: Sequence[Mapping[str, Any]], children: Sequence[Child]) -> dict[str, str]:
    """Return the ids of the live delegated runs by the ids of their steps.

    A round has a call for each ready step, in their order. So the index of the call that a run carries out names its
    step. The step itself names its call only after the round.
    """
    done = {step["id"] for step in steps if step.get("status") == "done"}
    ready = [step for step in steps if step.get("status") == "open" and done.issuperset(step.get("depends_on") or ())]
    by_index = {str(index): step for index, step in enumerate(ready)}
    found: dict[str, str] = {}
    for child in children:
        _, _, index = delegate_activity_id(child.workflow_id).partition(".")
        step = by_index.get(index)  # None for `1.f0`, a fallback
        if step is not None and step.get("skill") == child.agent:
            found[step["id"]] = child.workflow_id
    return found


def _step(step: Mapping[str, Any], delegates: Mapping[str, str]) -> StepRow:
    known = {key: value for key, value in step.items() if value is not None}
    place = as_text(step.get("output")) or None
    return StepRow.model_validate({**known, "place": place, "delegate": delegates.get(step["id"])})


def controls(now: Situation) -> tuple[AvailableAction, ...]:
    """Return for each action whether it makes sense in a situation, and the reason if it does not."""
    obstacles = {kind: rule.obstacle(now) for kind, rule in ACTIONS.items()}
    return tuple(AvailableAction(kind=kind, enabled=not why, why=why) for kind, why in obstacles.items())


def with_controls_for(visitor: Visitor, snapshot: dict[str, Any], *, read_only: bool) -> dict[str, Any]:
    """Return a snapshot, or a state of the stream, whose controls also respect the visitor's rights."""

    def limited(control: Mapping[str, Any]) -> dict[str, Any]:
        role = ACTIONS[control["kind"]].role
        if read_only:
            return {**control, "enabled": False, "why": "this console is read-only"}
        if not visitor.may(role):
            return {**control, "enabled": False, "why": f"needs the role {role}"}
        return dict(control)

    return {**snapshot, "controls": [limited(control) for control in snapshot["controls"]]}


@ROUTES.get("/runs/{id}", Snapshot)
async def _show(call: Call[NoParameters]) -> dict[str, Any]:
    """Show the state of a run, and what can be done to it now."""
    snapshot = await read_snapshot(call.console, call.described)
    return with_controls_for(call.visitor, snapshot, read_only=call.console.doors.read_only)
