"""What a worker that we start is told: on its command line and in its environment."""

from dataclasses import dataclass
from pathlib import Path

POLLING_MESSAGE = "worker polls task queue"
"""How a worker begins to say that it is there."""

ROOT_VARIABLE = "ORGA_TOOLS__FILES__ROOT"


@dataclass(frozen=True)
class WorkerOrder:
    """What a worker is told at its start."""

    address: str | None
    """None for the embedded server, which a worker finds by itself: credentials of the environment are not for it."""
    namespace: str | None
    task_queue: str
    config: Path | None = None
    root: Path | None = None
    """Folder of the file tools; None is what the config says, else the working directory."""
    json_logs: bool = False
    folder_queue: str | None = None
    """Polled beside `task_queue`."""
    deployment: str | None = None
    """Of whose versions it is one; None for a worker without a version."""

    def environment(self) -> dict[str, str]:
        """Return what no option says, as variables of the environment."""
        return {ROOT_VARIABLE: str(self.root)} if self.root else {}

    def arguments(self) -> list[str]:
        """Return the command line options."""
        named = (
            ("--address", self.address),
            ("--namespace", self.namespace),
            ("--task-queue", self.task_queue),
            ("--task-queue", self.folder_queue),
            ("--config", self.config),
            ("--deployment", self.deployment),
        )
        options = [text for name, value in named if value for text in (name, str(value))]
        return [*options, "--json-logs"] if self.json_logs else options
