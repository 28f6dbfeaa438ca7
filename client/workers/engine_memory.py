"""Which engine judged here before: policies that are missing at a start must not go unnoticed."""

from contextlib import suppress
from pathlib import Path

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError

from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from orga.client.history.values import values_of
from orga.client.past.aftermath import recorded_setup
from orga.client.runs.newest import newest_of
from orga.client.server.endpoint import ServerUnavailable
from orga.client.server.home import server_home
from orga.client.server.state_table import read_table, write_table
from orga.workflows.types.gate import is_weaker
from orga.workflows.types.names import RUNS

_LOOKED_AT = 50
"""Events: what a run works with stands at its beginning."""


def remembered_engine(config: OrgaConfig) -> str:
    """Return the engine of the latest worker of this configuration on this machine; empty where there was none."""
    return read_table(server_home().engines).get(_place(config), "")


def remember_engine(config: OrgaConfig, engine: str) -> None:
    """Keep it; where nothing can be kept, the runs themselves still say it."""
    with suppress(OSError, ServerUnavailable):
        write_table(server_home().engines, read_table(server_home().engines) | {_place(config): engine})


async def recorded_engine(client: Client, task_queue: str) -> str:
    """Return the engine that the latest run of a task queue began under; empty where there is none."""
    name = task_queue.replace("\\", "\\\\").replace('"', '\\"')
    try:
        kinds = ", ".join(f'"{kind}"' for kind in RUNS)
        for run in await newest_of(client, f'WorkflowType IN ({kinds}) AND TaskQueue = "{name}"', 1):
            history = WorkflowHistory(run.id, await _first_events(client, run.id, run.run_id))
            setup = await recorded_setup(values_of(client, history), history.events)
            return setup.policy if setup else ""
    except RPCError:
        pass  # who may poll need not be allowed to list
    return ""


def change_of_engine(config: OrgaConfig, engine: str, before: str) -> str:
    """Return what to say of an engine in place of the one before; empty where it is the same.

    Raises:
        ConfigError: It would decide less, and nobody has said so.
    """
    if config.policy.engine is None and is_weaker(engine, before):
        lost = config.policy.dir or "the policies folder, or [policy] opa"
        raise ConfigError(
            f"policy: {before} has judged the runs here, and now {engine} would, since there are no policies; restore "
            f'{lost}, or say [policy] engine = "{engine}"; work of another kind takes another [temporal] task_queue'
        )
    return f"policy: {engine} judges in place of {before}" if before and before != engine else ""


async def _first_events(client: Client, workflow_id: str, run_id: str) -> list[HistoryEvent]:
    found: list[HistoryEvent] = []
    async for event in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events(
        page_size=_LOOKED_AT
    ):
        found.append(event)
        if len(found) == _LOOKED_AT:
            break
    return found


def _place(config: OrgaConfig) -> str:
    return str(config.file or Path.cwd())
