"""Which run somebody means: its id, the beginning of one that no other shares, or the newest."""

import asyncio
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import AmbiguousRun, RunNotFound
from orga.client.runs.newest import newest_runs, visibility_literal
from orga.client.server.server_errors import is_unsupported
from orga.workflows.types.names import RUN_WORKFLOWS, SESSION_WORKFLOW

ID_PREFIXES = ("agent-", "goal-", "session-")
"""With which the ids begin that runs get by themselves: a beginning may leave them out."""

UUID_CHARS = 36

WHOLE_CHARS = min(map(len, ID_PREFIXES)) + UUID_CHARS
"""Of what has no head of ours. What is as long as a whole id was copied, and is never the beginning of another."""

MIN_CHARS = 4
"""Of a beginning, its head left out: fewer are a slip of the hand."""

MAX_FOUND = 200
"""Matches that are looked at; delegates, whose ids begin with their parent's, are among them."""

SHOWN_MATCHES = 5

LOOKS, BETWEEN_LOOKS_S = 20, 0.05
"""For a run that has begun: a server lists it a moment later, and a slow one is not waited for."""


@dataclass(frozen=True)
class NamedRun:
    """The run that is meant."""

    id: str
    is_told: bool
    """Whether its own id was said. Where it was not, people are told which run was taken."""


async def run_by_name(client: Client, name: str) -> NamedRun:
    """Return the run of this id; where there is none, the only run whose id begins so.

    Raises:
        RunNotFound: No run's id begins so, or too little of it was said.
        AmbiguousRun: Those of several runs do.
    """
    if await _run_exists(client, name):
        return NamedRun(name, is_told=True)
    if not can_be_id_prefix(name):
        raise RunNotFound(name, told=_too_short_text(name))
    query = " OR ".join(f"WorkflowId STARTS_WITH {visibility_literal(each)}" for each in _id_prefixes(name))
    found = without_delegates(await _list_runs(client, f"({query})", RunNotFound(name)))
    if not found:
        raise RunNotFound(name)
    if len(found) > 1:
        raise AmbiguousRun(name, [run.id for run in found[:SHOWN_MATCHES]], len(found))
    return NamedRun(found[0].id, is_told=False)


async def newest_run(client: Client, query: str) -> NamedRun:
    """Return the run that was started last of those that a query finds; delegates do not count.

    Raises:
        RunNotFound: There is none.
    """
    nothing = RunNotFound("--last", told='there is no run here yet; start one with: orga run "…"')
    return await _find_newest(client, f"{_RUNS} AND {query}", nothing)


async def newest_session(client: Client, query: str) -> NamedRun:
    """Return the session that was begun last, of those that have not ended; the rest as for `newest_run`."""
    nothing = RunNotFound("--last", told="there is no open session here; begin one with: orga chat")
    of_sessions = f"WorkflowType = {visibility_literal(SESSION_WORKFLOW)} AND {query}"
    return await _find_newest(client, of_sessions, nothing, with_ended=False)


async def wait_until_listed(client: Client, workflow_id: str) -> None:
    """Return once the server lists the run, or a second later: until it does `--last` and beginnings mean others."""
    with suppress(RunNotFound):
        for _ in range(LOOKS):
            if await _list_runs(client, f"WorkflowId = {visibility_literal(workflow_id)}", RunNotFound(workflow_id)):
                return
            await asyncio.sleep(BETWEEN_LOOKS_S)


async def _find_newest(client: Client, query: str, nothing: RunNotFound, *, with_ended: bool = True) -> NamedRun:
    with _listing_errors(nothing):
        for run in await newest_runs(client, query, 1, is_wanted=_is_no_delegate, with_ended=with_ended):
            return NamedRun(run.id, is_told=False)
    raise nothing


def _is_no_delegate(run: WorkflowExecution) -> bool:
    return not run.parent_id


def can_be_id_prefix(name: str) -> bool:
    """Return whether a run is looked for whose id begins so."""
    behind = _without_prefix(name)
    whole = WHOLE_CHARS if behind == name else UUID_CHARS
    return MIN_CHARS <= len(behind) < whole and name.isprintable()


def _too_short_text(name: str) -> str:
    if len(_without_prefix(name)) >= MIN_CHARS or not name.isprintable():
        return ""
    behind = "" if _without_prefix(name) == name else f" behind {name.removesuffix(_without_prefix(name))!r}"
    return (
        f"{name!r} is too short to be an id's beginning: say {MIN_CHARS} characters{behind}; `orga list` shows the ids"
    )


def _without_prefix(name: str) -> str:
    return next((name.removeprefix(head) for head in ID_PREFIXES if name.startswith(head)), name)


def without_delegates(found: Iterable[WorkflowExecution]) -> list[WorkflowExecution]:
    """Return the runs newest first, each id once, without the delegates of one that is among them."""
    newest: dict[str, WorkflowExecution] = {}
    for run in sorted(found, key=_start_time, reverse=True):
        newest.setdefault(run.id, run)
    return [run for run in newest.values() if not any(run.id.startswith(f"{other}.") for other in newest)]


_RUNS = f"WorkflowType IN ({', '.join(map(visibility_literal, RUN_WORKFLOWS))}) AND ExecutionStatus != 'ContinuedAsNew'"


def _id_prefixes(name: str) -> Sequence[str]:
    return (name, *(f"{head}{name}" for head in ID_PREFIXES if not name.startswith(ID_PREFIXES)))


def _start_time(run: WorkflowExecution) -> datetime:
    return run.start_time


async def _run_exists(client: Client, workflow_id: str) -> bool:
    try:
        await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
            return False
        raise
    return True


async def _list_runs(client: Client, query: str, otherwise: RunNotFound) -> list[WorkflowExecution]:
    with _listing_errors(otherwise):
        return [run async for run in client.list_workflows(f"{_RUNS} AND {query}", limit=MAX_FOUND)]


@contextmanager
def _listing_errors(otherwise: RunNotFound) -> Generator[None]:
    """A server that does not list runs, or not by this, knows none by less than its id."""
    try:
        yield
    except RPCError as error:
        if error.status == RPCStatusCode.INVALID_ARGUMENT or is_unsupported(error):
            raise otherwise from None
        raise
