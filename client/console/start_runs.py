"""Starts runs, and describes their input: `POST /runs` and `GET /schema/{kind}`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, Field
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from orga.client.console.doors import Visitor
from orga.client.console.openapi import json_schema
from orga.client.console.problems import Problem, invalid, refused
from orga.client.console.routes import API, Call, Console, NoParameters, Routes, derived_id, json_response
from orga.client.console.rows import KINDS, Kind
from orga.client.errors import IdTaken
from orga.client.runs.agents import STARTED_BY_MEMO, AgentHandle, new_run_id, start_run
from orga.client.runs.ids import refuse_derived
from orga.client.runs.listing import read_input
from orga.workflows.types.goals.goal_input import GoalInput, parse_goal
from orga.workflows.types.input import AgentInput, parse_input
from orga.workflows.types.names import AGENT_WORKFLOW, GOAL_WORKFLOW, SESSION_WORKFLOW, TENANT
from orga.workflows.types.record import CheckedInput, InvalidInput, Record
from orga.workflows.types.sessions.session_input import SessionInput, parse_session

ROUTES = Routes()

IDEMPOTENCY_KEY = "Idempotency-Key"
MAX_KEY_CHARS = 200

Input = AgentInput | GoalInput | SessionInput


class StartKind(NamedTuple):
    """A kind of run: its workflow type, the model of its input, and the function that checks an input."""

    workflow: str
    model: type[BaseModel]
    parse: Callable[[Any], Input]


def _summary(given: Input) -> str:
    if isinstance(given, SessionInput):
        return f"session with {given.agent}"
    return given.goal if isinstance(given, GoalInput) else given.task


START_KINDS: Mapping[str, StartKind] = {
    "agent": StartKind(AGENT_WORKFLOW, AgentInput, parse_input),
    "goal": StartKind(GOAL_WORKFLOW, GoalInput, parse_goal),
    "session": StartKind(SESSION_WORKFLOW, SessionInput, parse_session),
}


class Start(CheckedInput):
    """A run to start."""

    kind: Kind
    input: dict[str, Any]
    """The input of the run. `GET /schema/{kind}` describes it."""
    id: str | None = Field(default=None, min_length=1, max_length=1_000)
    """The run's id. Default: a new id, or an id that is derived from the `Idempotency-Key`."""


class StartedRun(Record):
    """The run that was started."""

    id: str
    kind: Kind


@ROUTES.post(
    "/runs",
    StartedRun,
    role="operator",
    status=201,
    more_statuses=(409,),
    is_start=True,
    headers={IDEMPOTENCY_KEY: "A request that is repeated with the same key starts one run."},
)
async def _start(call: Call[Start]) -> Any:
    """Start an agent run, a goal or a session."""
    given, visitor, client = call.given, call.visitor, call.client
    kind, key = START_KINDS[given.kind], _idempotency_key(call)
    checked = checked_input(call.console, visitor, kind, given.input)
    run_id = _run_id(call, key)
    try:
        await begin_run(call.console, visitor, kind, checked, run_id)
    except IdTaken:
        found = await AgentHandle(client, run_id).describe()
        is_repeated = bool(key) and await _is_same(client, found, visitor, kind.workflow, checked)
        if not is_repeated and key and given.id is None:
            text = "was used for another request. Take a new key for this one"
            raise refused(IDEMPOTENCY_KEY, text, 409) from None
        if not is_repeated:
            raise refused("id", f"{run_id!r} is taken by another run. Choose another id", 409) from None
    location = {"Location": f"{API}/runs/{quote(run_id, safe='')}"}
    return json_response(StartedRun(id=run_id, kind=given.kind), 201, **location)


def _run_id(call: Call[Start], key: str) -> str:
    """Return the given id of the run, or an id derived from the key, by which a repeated request finds the run."""
    if key and call.given.id is None:
        return f"run-{derived_id(*call.visitor.identity, key)}"
    refuse_derived(call.given.id)
    return new_run_id(call.given.id, call.given.kind)


async def begin_run(console: Console, visitor: Visitor, kind: StartKind, checked: Input, run_id: str) -> None:
    """Start a run for a visitor, who can see it at once. Raise the errors of `start_agent`."""
    attributes: list[SearchAttributePair[Any]] = []
    if visitor.tenants is not None and checked.tenant:  # the run itself sets its tenant only later
        attributes.append(SearchAttributePair(TENANT, checked.tenant))
    await start_run(
        console.client,
        kind.workflow,
        checked,
        _summary(checked),
        run_id,
        task_queue=console.connection.task_queue,
        again=False,
        attributes=TypedSearchAttributes(attributes),
        started_by=visitor.name,
    )


def _idempotency_key(call: Call[Start]) -> str:
    key = call.request.headers.get(IDEMPOTENCY_KEY, "")
    if len(key) > MAX_KEY_CHARS:
        raise invalid([f"{IDEMPOTENCY_KEY}: must not be longer than {MAX_KEY_CHARS} characters"])
    return key


def checked_input(console: Console, visitor: Visitor, kind: StartKind, fields: Mapping[str, Any]) -> Input:
    """Return the checked input, with one of the visitor's tenants. Raise Problem with all bad keys."""
    tenants, given = visitor.tenants, dict(fields)
    if tenants is not None:
        if given.get("tenant") is None and len(tenants) == 1:
            given["tenant"] = next(iter(tenants))
        tenant = given.get("tenant")
        if not isinstance(tenant, str) or tenant not in tenants:
            raise invalid([f"tenant: must be one of {', '.join(sorted(tenants)) or 'none'}"])
    try:
        checked = kind.parse(given)
        console.check(checked)
    except InvalidInput as error:
        raise invalid(error.problems) from None
    return checked


async def _is_same(
    client: Client, found: WorkflowExecutionDescription, visitor: Visitor, workflow: str, checked: Input
) -> bool:
    """Return whether this visitor has started the run with the same input."""
    if found.workflow_type != workflow or await found.memo_value(STARTED_BY_MEMO, "") != visitor.name:
        return False
    return await read_input(client, found) == checked.model_dump(mode="json", exclude_unset=True)


class StartedInput(Record):
    """The input that a run was started with."""

    kind: Kind
    input: dict[str, Any]


@ROUTES.get("/runs/{id}/input")
async def _input(call: Call[NoParameters]) -> StartedInput:
    """Return the input that a run was started with, to start another one with it."""
    kind = KINDS[call.described.workflow_type]
    return StartedInput(kind=kind, input=await read_input(call.client, call.described))


@ROUTES.get("/schema/{kind}", {"type": "object"}, more_statuses=(404,))
async def _schema(call: Call[NoParameters]) -> dict[str, Any]:
    """Return the JSON Schema of the input of a kind of run."""
    kind = START_KINDS.get(call.path("kind"))
    if kind is None:
        raise Problem(404, f"there is no such kind of run. There are {', '.join(START_KINDS)}")
    return json_schema(kind.model)
