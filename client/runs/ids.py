"""Checks the ids of runs, and finds a run by its id, by the beginning of its id, or because it is the newest."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import AmbiguousRun, IdTaken, RunNotFound
from orga.client.runs.endings import read_ending
from orga.client.runs.newest import newest_runs, visibility_literal
from orga.client.server.server_errors import is_unsupported
from orga.workflows.types.names import RUN_WORKFLOWS, SESSION_WORKFLOW
from orga.workflows.types.record import InvalidInput

MAX_ID_BYTES = 1_000
"""The server refuses a longer id, but the client does not receive that error."""


DERIVED = 5
"""The UUID version of ids that are computed from a request, so that a repeated request finds its run."""


def made_version(run_id: str) -> int | None:
    """Return the version of the UUID in an id that `orga` has made, or None for an id that somebody chose."""
    kind, _, rest = run_id.partition("-")
    try:
        made = UUID(rest)
    except ValueError:
        return None
    is_canonical = str(made) == rest
    return made.version if is_canonical and kind in {"agent", "goal", "session", "run"} else None


def refuse_derived(chosen: str | None) -> None:
    """Raise InvalidInput for an id in the form of computed ids. A request for that id would find a stranger's run."""
    if chosen is not None and made_version(chosen) == DERIVED:
        raise InvalidInput(f"id: {chosen!r} has the form of ids that follow from requests. Choose another id")


def reuse_policy(*, again: bool = False) -> WorkflowIDReusePolicy:
    """Return the policy for the id of an ended run: a new run may use it only with `again`."""
    return WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE


async def id_taken_error(
    client: Client, workflow_id: str, again: str = "pass --again to start a new run with it"
) -> IdTaken:
    """Return the error for an id that is in use. If its run has ended, `again` states how to use the id again."""
    try:
        found = await client.get_workflow_handle(workflow_id).describe()
    except RPCError:  # the run was deleted in the meantime
        return IdTaken(f"a run {workflow_id!r} already exists; choose another id")
    if found.status == WorkflowExecutionStatus.RUNNING:
        return IdTaken(f"run {workflow_id!r} is live already; attach to it, or choose another id")
    how = await read_ending(client, found)
    when = f" at {found.close_time.astimezone():%Y-%m-%d %H:%M:%S}" if found.close_time else ""
    return IdTaken(f"run {workflow_id!r} has ended{when} ({how}) and keeps its id; choose another id, or {again}")


ID_PREFIXES = ("agent-", "goal-", "session-")
"""The prefixes of generated ids. People may leave them out."""

_UUID_CHARS = 36

_WHOLE_CHARS = min(map(len, ID_PREFIXES)) + _UUID_CHARS
"""The length of the shortest generated id. A name without a prefix that is this long is a whole id, not a beginning."""

MIN_CHARS = 4
"""Characters of the shortest beginning, without prefix. A shorter one is probably a typing error."""

MAX_FOUND = 200
"""The most matches that are read. They include delegates, because a delegate's id begins with its parent's."""

_SHOWN_MATCHES = 5

LOOKS, BETWEEN_LOOKS_S = 20, 0.05
"""Attempts to find a run that has just started, and seconds between them. A server lists a run after a delay."""


@dataclass(frozen=True)
class NamedRun:
    """A run that was found by name."""

    id: str
    is_whole_id: bool
    """True if the name was the whole id. If not, the command shows the id of the run."""


async def run_by_name(client: Client, name: str) -> NamedRun:
    """Return the run with this id, else the only run whose id begins with the name."""
    if await _run_exists(client, name):
        return NamedRun(name, is_whole_id=True)
    if not can_be_id_prefix(name):
        raise RunNotFound(name, text=_too_short_text(name))
    beginnings = [name] if name.startswith(ID_PREFIXES) else [name, *(f"{prefix}{name}" for prefix in ID_PREFIXES)]
    query = " OR ".join(f"WorkflowId STARTS_WITH {visibility_literal(each)}" for each in beginnings)
    found = _without_delegates(await _list_runs(client, f"({query})", RunNotFound(name)))
    if not found:
        raise RunNotFound(name)
    if len(found) > 1:
        raise AmbiguousRun(name, [run.id for run in found[:_SHOWN_MATCHES]], len(found))
    return NamedRun(found[0].id, is_whole_id=False)


async def newest_run(client: Client, query: str) -> NamedRun:
    """Return the run that matches the query and started last. Delegates are ignored."""
    not_found = RunNotFound("--last", text='there is no run here yet; start one with: orga run "…"')
    return await _find_newest(client, f"{_RUNS} AND {query}", not_found)


async def newest_session(client: Client, query: str) -> NamedRun:
    """Return the live session that matches the query and started last."""
    not_found = RunNotFound("--last", text="there is no open session here; begin one with: orga chat")
    sessions_query = f"WorkflowType = {visibility_literal(SESSION_WORKFLOW)} AND {query}"
    return await _find_newest(client, sessions_query, not_found, with_ended=False)


async def wait_until_listed(client: Client, workflow_id: str) -> None:
    """Wait until the server lists the run, at most one second. Until then, `--last` finds an older run."""
    with suppress(RunNotFound):
        for _ in range(LOOKS):
            if await _list_runs(client, f"WorkflowId = {visibility_literal(workflow_id)}", RunNotFound(workflow_id)):
                return
            await asyncio.sleep(BETWEEN_LOOKS_S)


async def _find_newest(client: Client, query: str, not_found: RunNotFound, *, with_ended: bool = True) -> NamedRun:
    with _listing_errors(not_found):
        found = await newest_runs(client, query, 1, is_wanted=lambda run: not run.parent_id, with_ended=with_ended)
    if not found:
        raise not_found
    return NamedRun(found[0].id, is_whole_id=False)


def can_be_id_prefix(name: str) -> bool:
    """Return whether the text may be the beginning of an id."""
    rest = _without_prefix(name)
    whole = _WHOLE_CHARS if rest == name else _UUID_CHARS
    return MIN_CHARS <= len(rest) < whole and name.isprintable()


def _too_short_text(name: str) -> str:
    if len(_without_prefix(name)) >= MIN_CHARS or not name.isprintable():
        return ""
    prefix = name.removesuffix(_without_prefix(name))
    after = f" after {prefix!r}" if prefix else ""
    return f"{name!r} is too short for an id's beginning: type {MIN_CHARS} characters{after}; `orga list` shows the ids"


def _without_prefix(name: str) -> str:
    return next((name.removeprefix(head) for head in ID_PREFIXES if name.startswith(head)), name)


def _without_delegates(found: Iterable[WorkflowExecution]) -> list[WorkflowExecution]:
    """Return the newest run of each id, newest first. A delegate is left out if its parent is also found."""
    newest: dict[str, WorkflowExecution] = {}
    for run in sorted(found, key=lambda run: run.start_time, reverse=True):
        newest.setdefault(run.id, run)
    return [run for run in newest.values() if not any(run.id.startswith(f"{other}.") for other in newest)]


_RUNS = f"WorkflowType IN ({', '.join(map(visibility_literal, RUN_WORKFLOWS))}) AND ExecutionStatus != 'ContinuedAsNew'"


async def _run_exists(client: Client, workflow_id: str) -> bool:
    try:
        await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
            return False
        raise
    return True


async def _list_runs(client: Client, query: str, not_found: RunNotFound) -> list[WorkflowExecution]:
    with _listing_errors(not_found):
        return [run async for run in client.list_workflows(f"{_RUNS} AND {query}", limit=MAX_FOUND)]


@contextmanager
def _listing_errors(not_found: RunNotFound) -> Generator[None]:
    """Raise `not_found` if the server cannot list runs or refuses this query."""
    try:
        yield
    except RPCError as error:
        if error.status == RPCStatusCode.INVALID_ARGUMENT or is_unsupported(error):
            raise not_found from None
        raise
