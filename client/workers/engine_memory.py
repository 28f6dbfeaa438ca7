"""Finds out which policy judged the runs of a task queue, so that a worker with a weaker or other policy is refused."""

from contextlib import suppress
from pathlib import Path

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecution, WorkflowHistory
from temporalio.service import RPCError

from orga.activities.adapters.policy.engines import engine_name, policy_version
from orga.activities.ports import PolicyEngine
from orga.client.config.policy import policy_location_digest, policy_settings
from orga.client.config.sections import OrgaConfig
from orga.client.config.workplace import recorded_policy
from orga.client.errors import ConfigError, ServerUnavailable
from orga.client.history.values import converters_of
from orga.client.past.dropped import recorded_setup
from orga.client.runs.newest import newest_runs, visibility_literal
from orga.client.server.home import read_table, server_home, write_table
from orga.client.server.pollers import WorkerIdentity, poller_identities, short_policy
from orga.workflows.types.names import RUN_WORKFLOWS
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.gate import is_same_policy, is_weaker_engine, policy_text

_MAX_EVENTS_READ = 50
"""First events of a run that are read. They contain its setup."""

LIVE_RUNS = 20
"""Live runs of a task queue whose policies are checked: the newest."""


def remembered_engine(config: OrgaConfig) -> str:
    """Return the policy engine of the last worker that used this configuration on this machine, or ""."""
    return read_table(server_home().engines).get(_memory_key(config), "")


def remember_engine(config: OrgaConfig, engine: str) -> None:
    """Remember the engine on this machine. If that fails, the runs themselves still record it."""
    with suppress(OSError, ServerUnavailable):
        write_table(server_home().engines, read_table(server_home().engines) | {_memory_key(config): engine})


async def recorded_engine(client: Client, task_queue: str) -> str:
    """Return the engine under which the latest run of a task queue began, or ""."""
    with suppress(RPCError):  # a worker may be allowed to poll but not to list runs
        for newest in await newest_runs(client, _queue_query(task_queue), 1):
            setup = await _read_setup(client, newest)
            return setup.policy if setup else ""
    return ""


async def require_own_policy(client: Client, task_queue: str, own: str) -> None:
    """Raise ConfigError if another policy judges the queue's runs. Any worker of a queue may judge any of its runs.

    `own` is the policy of the worker that is about to poll the queue, as `policy_text` returns it.
    """
    for identity in await poller_identities(client, task_queue) or ():
        if not is_same_policy(short_policy(own), WorkerIdentity.parse(identity).policy):
            raise ConfigError(
                f"policy: worker {identity} polls task queue {task_queue!r} and judges by another policy than this "
                "folder's. Give this folder a [temporal] task_queue of its own, or stop that worker"
            )
    with suppress(RPCError):  # a worker may be allowed to poll but not to list runs
        for run in await newest_runs(client, _queue_query(task_queue), LIVE_RUNS, with_ended=False):
            if not is_same_policy(own, await _policy_of_run(client, run)):
                raise ConfigError(
                    f"policy: run {run.id} on task queue {task_queue!r} is judged by another policy than this folder. "
                    "Give this folder a [temporal] task_queue of its own; or let the run end, keep changed policies "
                    "in the folder where they were, or start a version of a deployment (--deployment)"
                )


async def _policy_of_run(client: Client, run: WorkflowExecution) -> str:
    """Return the policy in the memo of a run, else the one in its setup, or "" if neither has one."""
    if recorded := await recorded_policy(run):
        return recorded
    setup = await _read_setup(client, run)
    if setup is None or not setup.policy_place:
        return ""
    return policy_text(setup.policy, setup.policy_place, setup.policy_version)


def worker_policy(config: OrgaConfig, engine: PolicyEngine) -> str:
    name = engine_name(policy_settings(config.policy, {}))
    return policy_text(name, policy_location_digest(config), policy_version(engine))


def _queue_query(task_queue: str) -> str:
    types = ", ".join(map(visibility_literal, RUN_WORKFLOWS))
    return f"WorkflowType IN ({types}) AND TaskQueue = {visibility_literal(task_queue)}"


async def _read_setup(client: Client, run: WorkflowExecution) -> Setup | None:
    history = WorkflowHistory(run.id, await _first_events(client, run.id, run.run_id))
    return await recorded_setup(converters_of(client, history), history.events)


def engine_change_text(config: OrgaConfig, engine: str, before: str) -> str:
    """Return a message if the engine differs from the one before, else "".

    Raise ConfigError if it checks less than the one before, unless the configuration names it.
    """
    if config.policy.engine is None and is_weaker_engine(engine, before):
        missing = config.policy.dir or "the policies folder, or [policy] opa"
        raise ConfigError(
            f"policy: {before} has judged the runs here, and now {engine} would, since there are no policies; restore "
            f'{missing}, or say [policy] engine = "{engine}"; for other work, use another [temporal] task_queue'
        )
    if not before or before == engine:
        return ""
    return f"policy: {engine} judges in place of {before}"


async def _first_events(client: Client, workflow_id: str, run_id: str) -> list[HistoryEvent]:
    events: list[HistoryEvent] = []
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events(page_size=_MAX_EVENTS_READ):
        events.append(event)
        if len(events) == _MAX_EVENTS_READ:
            break
    return events


def _memory_key(config: OrgaConfig) -> str:
    return str(config.file or Path.cwd())
