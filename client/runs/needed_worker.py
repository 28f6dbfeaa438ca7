"""The worker that a live run needs, and the command that starts it."""

from dataclasses import dataclass
from shlex import quote

from temporalio.client import WorkflowExecutionDescription

from orga.client.config.workplace import command_in, recorded_workplace, worker_command
from orga.client.server.versions import pinned_version
from orga.workflows.types.text import one_line


@dataclass(frozen=True)
class NeededWorker:
    """A worker for a run. A run that is pinned to a deployment version needs one of that version."""

    name: str = "worker"
    """`worker`, or `worker of version shop.k3m7qa`."""
    command: str = "orga worker"


async def needed_worker(run: WorkflowExecutionDescription) -> NeededWorker:
    """Return the worker that a run needs."""
    home, version = await recorded_workplace(run), pinned_version(run)
    if version is None:
        return NeededWorker(command=worker_command(home))
    start = f"orga worker --deployment {quote(version.deployment_name)}"
    command = command_in(home, start) if home else start
    return NeededWorker(f"worker of version {one_line(version.to_canonical_string(), 300)}", command)
