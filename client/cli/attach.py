"""`orga attach`: come back to a run."""

from pathlib import Path

from temporalio.client import WorkflowExecutionStatus

from client.cli.following import follow
from client.cli.interrupts import completed
from client.cli.options import ConfigFile, Json, NoWorker, RunId
from client.cli.output import note
from client.cli.session import session
from client.worker_keeping import kept_worker


def attach(run: RunId, no_worker: NoWorker = False, json: Json = False, config: ConfigFile = None) -> int:
    """Follow a run from its beginning to its end, as `orga run` does; works itself when no worker polls.

    A run that has ended is shown at once, with its result. Exit codes are those of `orga run`.

    Example: orga attach agent-0199b1c2-6f3e-7c11-9d8a-5a6b7c8d9e0f
    """
    return completed(_attach(run, config, no_worker=no_worker, as_json=json))


async def _attach(run_id: str, config: Path | None, *, no_worker: bool, as_json: bool) -> int:
    async with session(config) as here:
        described = await here.run(run_id).describe()
        if link := here.connection.link(run_id):
            note(link)
        queue = described.task_queue
        if no_worker or described.status != WorkflowExecutionStatus.RUNNING:
            return await follow(here, run_id, queue, None, as_json=as_json)
        async with kept_worker(here.client, here.worker_order(queue), note) as keeper:
            return await follow(here, run_id, queue, keeper, as_json=as_json)
