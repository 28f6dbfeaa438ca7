"""The first steps of most commands: read the configuration, connect to Temporal, and find the named run."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client, WorkflowExecution

from orga.client.cli.commands import NEWEST_RUN
from orga.client.cli.shown.text import write_note
from orga.client.config.file import NO_FILE, load_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.workplace import is_earlier_queue, recorded_workplace
from orga.client.connect import Connection, connection
from orga.client.errors import ServerUnavailable
from orga.client.runs.agents import AgentHandle
from orga.client.runs.ids import NamedRun, newest_run, run_by_name
from orga.client.runs.newest import visibility_literal
from orga.client.server.embedded import server_death
from orga.client.server.endpoint import Endpoint
from orga.client.server.resolve import names_server
from orga.client.telemetry.start import forward_core_logs
from orga.client.workers.early_start import WorkerOrder
from orga.workflows.types.text import full_field_text


@dataclass(frozen=True)
class CliContext:
    config: OrgaConfig
    connection: Connection

    @property
    def client(self) -> Client:
        return self.connection.client

    @property
    def task_queue(self) -> str:
        return self.connection.task_queue

    @property
    def folder_runs_query(self) -> str:
        """A visibility query for the runs of this folder. On a configured server, it finds those of the task queue."""
        if self.connection.endpoint.embedded:
            return f"TaskQueue STARTS_WITH {visibility_literal(self.connection.folder_queue)}"
        return f"TaskQueue = {visibility_literal(self.task_queue)}"

    async def may_work_on(self, run: WorkflowExecution) -> bool:
        """Return whether this command's worker may poll the run's queue.

        On the embedded server, a worker serves only the runs of its own folder.
        """
        own_queues = {self.task_queue, self.connection.folder_queue}
        if not self.connection.endpoint.embedded or run.task_queue in own_queues:
            return True
        return is_earlier_queue(run.task_queue, await recorded_workplace(run), self.connection.workplace)

    def run(self, workflow_id: str) -> AgentHandle:
        return AgentHandle(self.client, workflow_id)

    def worker_order(self, task_queue: str | None = None, *, for_folder: bool = False) -> WorkerOrder:
        """Return the order for a worker of this command.

        Args:
            task_queue: The queue to poll. Default: the queue of this folder and shell.
            for_folder: Also poll the folder's queue, which holds the runs of shells without model settings.
        """
        endpoint, folder_queue = self.connection.endpoint, self.connection.folder_queue
        return WorkerOrder(
            address=None if endpoint.embedded else endpoint.address,
            namespace=None if endpoint.embedded else endpoint.namespace,
            task_queue=task_queue or self.task_queue,
            config=self.config.file or NO_FILE,
            folder_queue=folder_queue if for_folder and folder_queue != self.task_queue else None,
        )

    def require_usable(self) -> None:
        """Raise ConfigError, with the remedy, if a worker of this command could not start."""
        from orga.client.config.policy import require_usable  # most commands start no worker

        require_usable(self.config, Path(self.connection.workplace.root), os.environ)


ConfigCheck = Callable[[OrgaConfig], None]
"""Raises an error if a worker with this configuration would refuse the request."""


@asynccontextmanager
async def cli_context(
    config_file: Path | None, *, root: Path | None = None, check: ConfigCheck | None = None
) -> AsyncGenerator[CliContext]:
    """Read the configuration and connect. Raise ConfigError or ServerUnavailable.

    `check` is called before anything starts. It is skipped for a configured server: its workers may have another
    configuration.
    """
    config = load_config(config_file)
    if check is not None and not names_server(config.temporal.address):
        check(config)
    forward_core_logs(with_retries=False)
    async with connection(config, write_note, root=root) as connected:
        yield CliContext(config, connected)


WATCH_S = 2.0
"""Seconds between two checks whether the supervisor of the embedded server has given up."""


@asynccontextmanager
async def raising_server_death(endpoint: Endpoint) -> AsyncGenerator[None]:
    """Raise ServerUnavailable if the supervisor of the embedded server gives up during the block.

    A server that was only stopped does not end the block, because the next command starts it at the same address.
    """
    block, deaths = asyncio.current_task(), list[ServerUnavailable]()

    async def watch() -> None:
        while not deaths:
            await asyncio.sleep(WATCH_S)
            if (death := server_death()) is not None and block is not None:
                deaths.append(death)
                block.cancel()

    watching = asyncio.create_task(watch()) if endpoint.embedded else None
    try:
        yield
    except asyncio.CancelledError:
        is_by_watcher = bool(deaths) and block is not None and block.uncancel() == 0
        if not is_by_watcher:  # Ctrl-C
            raise
        raise deaths[0] from None
    finally:
        if watching is not None:
            watching.cancel()


NewestRunFinder = Callable[[Client, str], Awaitable[NamedRun]]
"""Returns the newest of the runs that match a visibility query."""


@asynccontextmanager
async def run_context(
    name: str, config_file: Path | None, find_newest: NewestRunFinder = newest_run
) -> AsyncGenerator[tuple[CliContext, str]]:
    """Connect as `cli_context` does, and find the named run. A note shows its id unless the full id was typed.

    Args:
        name: The id, its first characters, or `NEWEST_RUN`.

    Raises:
        RunNotFound: No run matches.
        AmbiguousRun: Several runs match.
    """
    async with cli_context(config_file) as context:
        if name == NEWEST_RUN:
            run = await find_newest(context.client, context.folder_runs_query)
        else:
            run = await run_by_name(context.client, name)
        if not run.is_whole_id:
            write_note(f"run {full_field_text(run.id)}")
        yield context, run.id
