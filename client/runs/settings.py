"""Reads, saves and lists the settings at run time of a task queue.

A workflow on the queue holds them (`orga.workflows.settings_workflow`). The current set is in its memo, so reading it
needs no worker.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from orga.client.config.workplace import client_queue
from orga.client.errors import InvalidSettings, NoAnswer, NotSavedYet, NotTakenYet, Refused
from orga.client.runs.exchange import Exchange, user_error
from orga.client.server.pollers import may_be_polled
from orga.client.server.server_errors import error_reason
from orga.workflows.decisions.settings import size_problem
from orga.workflows.types.names import SETTINGS_WORKFLOW
from orga.workflows.types.record import bounds_problem
from orga.workflows.types.settings import (
    FULL_BYTES,
    FULL_EVENTS,
    SETTINGS_MEMO,
    CurrentSettings,
    SettingProblem,
    SettingsState,
    SettingsVersion,
    settings_id,
)

READ_TIMEOUT = timedelta(seconds=10)
SAVE_TIMEOUT = timedelta(seconds=20)
"""More than the 10 seconds after which another worker gets the task of a worker that was killed."""

WORKER_S, BETWEEN_LOOKS_S = 2.0, 0.1
"""Seconds to wait for a worker that has just started, and seconds between two looks."""

SettingsCondition = Literal["ready", "absent", "broken", "unreachable"]


@dataclass(frozen=True)
class RecordedSettings:
    """The settings that a server holds for a task queue. They are not checked yet."""

    state: SettingsCondition
    """In every state except `ready`, only the configuration of the workers counts."""
    current: CurrentSettings | None = None
    """None if nothing has been saved."""
    detail: str = ""
    """The problem and its remedy, or ""."""

    @property
    def version(self) -> int:
        """The current version, or 0 if nothing has been saved."""
        return self.current.version if self.current else 0

    @property
    def values(self) -> Mapping[str, Any]:
        """The whole set, as it was saved."""
        return self.current.values if self.current else {}


async def read_settings(
    client: Client, task_queue: str | None = None, *, within: timedelta = READ_TIMEOUT
) -> RecordedSettings:
    """Return the settings of a queue, by default the client's own. Raise no error, and wait no longer than `within`."""
    queue = task_queue or client_queue(client)
    try:
        async with asyncio.timeout(within.total_seconds()):  # the SDK repeats a call beyond its `rpc_timeout`
            handle = client.get_workflow_handle(settings_id(queue))
            return await _settings_in(await handle.describe(rpc_timeout=within))
    except TimeoutError:
        return RecordedSettings("unreachable", detail="the server does not show them in time")
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return RecordedSettings("absent")
        return RecordedSettings("unreachable", detail=f"the server does not show them: {error_reason(error)}")
    except Exception as error:  # a client's interceptors and codec may raise anything
        return RecordedSettings("unreachable", detail=f"they cannot be read: {type(error).__name__}")


async def _settings_in(described: WorkflowExecutionDescription) -> RecordedSettings:
    if described.workflow_type != SETTINGS_WORKFLOW:
        detail = f"{described.id!r} is a workflow of another type; terminate it"
        return RecordedSettings("broken", detail=detail)
    if described.status != WorkflowExecutionStatus.RUNNING:
        return RecordedSettings("absent")
    try:
        memo = await described.memo_value(SETTINGS_MEMO, None)
        current = None if memo is None else CurrentSettings.model_validate(memo)
        too_large = size_problem(current.values) if current else ""
    except Exception as error:  # anybody can write the memo, and a codec may raise anything
        problem = "it is invalid" if isinstance(error, ValidationError) else type(error).__name__
        detail = f"the memo of {described.id!r} cannot be read ({problem}); terminate it and save again"
        return RecordedSettings("broken", detail=detail)
    if too_large:
        return RecordedSettings("broken", detail=f"the set of {described.id!r} {too_large}")
    return RecordedSettings("ready", current)


async def save_settings(
    client: Client, values: Mapping[str, Any], *, version: int, by: str, task_queue: str | None = None
) -> int:
    """Save a whole set of settings, and return its version. Runs that start later use the set.

    A worker of the queue checks the set as if it were in `orga.toml`. To go back to a version, save its values. To
    reset a key, leave it out.

    Args:
        client: From `connect`, `orga.worker` or your own.
        values: JSON values by key, such as `{"agents.default.config.max_iterations": 40}`.
        version: The version that was changed to make this set, or 0 if there is none.
        by: The name of the person who saves it.
        task_queue: The queue. None takes the client's own.

    Raises:
        InvalidSettings: A value is invalid. The error names each bad key.
        StaleSettings: Somebody has saved another set since that version.
        NoAnswer: No worker polls the queue.
        NotSavedYet: A worker polled the queue, but has not answered.
        OrgaError: The server cannot be reached.
    """
    if problem := bounds_problem(dict(values), frozenset(values)):
        raise InvalidSettings([_problem_in(problem)])
    queue = task_queue or client_queue(client)
    await _require_worker(client, queue)
    try:
        await client.start_workflow(  # pyright: ignore[reportUnknownMemberType]
            SETTINGS_WORKFLOW,
            SettingsState(full_events=FULL_EVENTS, full_bytes=FULL_BYTES),
            id=settings_id(queue),
            task_queue=queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"settings of {queue}"[:200],
        )
        change = {"version": version, "values": dict(values), "by": by}
        return int(await Exchange(client, settings_id(queue)).update("save", change, SAVE_TIMEOUT))
    except RPCError as error:
        raise user_error(error, settings_id(queue)) from error
    except NotTakenYet:
        found = await read_settings(client, queue)
        if found.version == version + 1 and found.values == values:
            return found.version
        raise NotSavedYet(queue) from None
    except Refused as error:
        if error.kind == "ValueError":  # the workflow's validator refused the argument
            raise InvalidSettings([_problem_in(str(error))]) from None
        if error.kind != "InvalidSettings":
            raise
        problems = TypeAdapter(list[SettingProblem]).validate_python(*error.details)
        raise InvalidSettings(problems) from None


async def _require_worker(client: Client, queue: str) -> None:
    """Wait a moment for a worker, because the server does not notice a new one at once."""
    until = time.monotonic() + WORKER_S
    while not await may_be_polled(client, queue):
        if time.monotonic() > until:
            raise NoAnswer(queue)
        await asyncio.sleep(BETWEEN_LOOKS_S)


def _problem_in(text: str) -> SettingProblem:
    where, _, detail = text.partition(": ")
    return SettingProblem(where=where, detail=detail)


async def settings_versions(client: Client, task_queue: str | None = None) -> tuple[SettingsVersion, ...]:
    """Return the last versions, oldest first. This needs a worker of the queue.

    Raises:
        NoAnswer: No worker answers.
        OrgaError: The server cannot be reached.
    """
    queue = task_queue or client_queue(client)
    if (await read_settings(client, queue)).state in {"absent", "unreachable"}:
        return ()
    exchange = Exchange(client, settings_id(queue))
    await exchange.require_worker()
    return SettingsState.model_validate(await exchange.query("versions")).versions
