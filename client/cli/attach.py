"""`orga attach`: come back to a run."""

from pathlib import Path
from shlex import quote

from temporalio.client import WorkflowExecutionStatus

from orga.client.cli.following import follow
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, NoWorker, Quiet, RunId
from orga.client.cli.output import hush, note
from orga.client.cli.session import of_run
from orga.client.cli.terminal_text import on_one_line
from orga.client.config.workplace import home_of, worker_command
from orga.client.server.pollers import may_be_polled
from orga.client.workers.keeping import kept_worker
from orga.workflows.types.input import Workplace


def attach(
    run: RunId, no_worker: NoWorker = False, quiet: Quiet = False, json: Json = False, config: ConfigFile = None
) -> int:
    """Follow a run from its beginning to its end, as `orga run` does; works itself when no worker polls.

    A run of another folder is only followed: its worker is started there.

    A run that has ended is shown at once, with its result. Exit codes are those of `orga run`.

    Example: orga attach agent-0199b1c2-6f3e-7c11-9d8a-5a6b7c8d9e0f
    """
    hush(quiet=quiet)
    return completed(_attach(run, config, no_worker=no_worker, as_json=json))


async def _attach(named: str, config: Path | None, *, no_worker: bool, as_json: bool) -> int:
    async with of_run(named, config) as (here, run_id):
        described = await here.run(run_id).describe()
        if link := here.connection.link(run_id):
            note(link)
        queue = described.task_queue
        if not (is_own := await here.may_work_on(described)) and not await may_be_polled(here.client, queue):
            note(elsewhere(run_id, queue, await home_of(described)))
        if no_worker or not is_own or described.status != WorkflowExecutionStatus.RUNNING:
            return await follow(here, run_id, queue, None, as_json=as_json)
        async with kept_worker(here.client, here.worker_order(queue), note, here.require_usable) as keeper:
            return await follow(here, run_id, queue, keeper, as_json=as_json)


def elsewhere(run_id: str, queue: str, home: Workplace | None, command: str = "orga attach") -> str:
    """Return how to get a worker for a run of another folder, or of a shell that names other models."""
    if home is None:
        return f"the run was started for no folder: workers of none poll task queue {queue!r}; orga doctor tells which"
    is_here = home.folder == str(Path.cwd())
    where = "asks the models of its shell" if is_here else f"is at home in {on_one_line(home.folder)}"
    return f"the run {where}: {worker_command(home, f'{command} {quote(run_id)}')}"
