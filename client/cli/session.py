"""What most commands need first: the configuration and a connection to Temporal."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client, WorkflowExecution

from orga.client.cli.commands import NEWEST_RUN
from orga.client.cli.shown.text import write_note
from orga.client.config.file import NO_FILE, LoadedConfig, load_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.worker_order import WorkerOrder
from orga.client.config.workplace import is_earlier_queue, recorded_workplace
from orga.client.connect import Connection, connection
from orga.client.runs.agents import AgentHandle
from orga.client.runs.named import NamedRun, newest_run, run_by_name
from orga.client.runs.newest import visibility_literal
from orga.client.server.resolve import names_server
from orga.client.telemetry.core_logs import forward_core_logs
from orga.workflows.types.text import full_field_text


@dataclass(frozen=True)
class CliContext:
    """A command's configuration and server."""

    loaded: LoadedConfig
    connection: Connection

    @property
    def client(self) -> Client:
        """The Temporal client."""
        return self.connection.client

    @property
    def task_queue(self) -> str:
        """Where workers poll."""
        return self.connection.task_queue

    @property
    def runs_here(self) -> str:
        """The query for the runs of this folder; on a configured server for those of the task queue."""
        here = self.connection
        if here.endpoint.embedded:
            return f"TaskQueue STARTS_WITH {visibility_literal(here.folder_queue)}"
        return f"TaskQueue = {visibility_literal(here.task_queue)}"

    async def may_work_on(self, run: WorkflowExecution) -> bool:
        """Return whether a worker of this command may poll a run's queue: on the embedded server, its folder's only."""
        here, queue = self.connection, run.task_queue
        if not here.endpoint.embedded or queue in {here.task_queue, here.folder_queue}:
            return True
        return is_earlier_queue(queue, await recorded_workplace(run), here.workplace)

    def run(self, workflow_id: str) -> AgentHandle:
        """Return the handle of a run."""
        return AgentHandle(self.client, workflow_id)

    def worker_order(self, task_queue: str | None = None, *, for_folder: bool = False) -> WorkerOrder:
        """Return the order for a worker of this command.

        Args:
            task_queue: What it polls; the queue of this folder and shell without.
            for_folder: Whether it polls the folder's queue as well, for shells that say nothing about models.
        """
        here, endpoint = self.connection, self.connection.endpoint
        named = (None, None) if endpoint.embedded else (endpoint.address, endpoint.namespace)
        folder = here.folder_queue if for_folder and here.folder_queue != here.task_queue else None
        return WorkerOrder(*named, task_queue or self.task_queue, self.loaded.path or NO_FILE, folder_queue=folder)

    def require_usable(self) -> None:
        """Refuse what would keep a worker of this command from beginning.

        Raises:
            ConfigError: Naming the place and the remedy.
        """
        from orga.client.config.usable import require_usable  # most commands start no worker

        require_usable(self.loaded.config, Path(self.connection.workplace.root), os.environ)


ConfigCheck = Callable[[OrgaConfig], None]
"""Raises what a configuration's own workers would refuse."""


@asynccontextmanager
async def cli_context(
    config_file: Path | None, *, root: Path | None = None, check: ConfigCheck | None = None
) -> AsyncGenerator[CliContext]:
    """Read the configuration and connect.

    Args:
        config_file: Where a command names one.
        root: Of file tools; wins over the configuration's.
        check: Is called before anything is started, where the workers will be those of this configuration.

    Raises:
        ConfigError: The configuration cannot be used.
        ServerUnavailable: There is no server.
    """
    loaded = load_config(config_file)
    if check is not None and not names_server(loaded.config.temporal.address):
        check(loaded.config)
    forward_core_logs(with_retries=False)
    async with connection(loaded.config, write_note, root=root) as connected:
        yield CliContext(loaded, connected)


NewestRunFinder = Callable[[Client, str], Awaitable[NamedRun]]
"""Returns the newest of the runs that a visibility query finds."""


@asynccontextmanager
async def run_context(
    named: str, config_file: Path | None, newest: NewestRunFinder = newest_run
) -> AsyncGenerator[tuple[CliContext, str]]:
    """Begin as `session` does, and find out which run is meant; people are told which where its id was not said.

    Args:
        named: The id, a beginning of it, or `--last`.
        config_file: Where a command names one.
        newest: Finds what `--last` stands for.

    Raises:
        RunNotFound: None is.
        AmbiguousRun: Several may be.
    """
    async with cli_context(config_file) as here:
        if named == NEWEST_RUN:
            meant = await newest(here.client, here.runs_here)
        else:
            meant = await run_by_name(here.client, named)
        if not meant.is_told:
            write_note(f"run {full_field_text(meant.id)}")
        yield here, meant.id
