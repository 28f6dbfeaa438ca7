"""What a worker that we start is told: on its command line and in its environment."""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT_VARIABLE = "ORGA_TOOLS__FILES__ROOT"


@dataclass(frozen=True)
class WorkerOrder:
    """What a worker is told at its start."""

    address: str
    namespace: str
    task_queue: str
    config: Path | None = None
    root: Path | None = None
    """Folder of the file tools; None is what the config says, else the working directory."""
    json_logs: bool = False

    def environment(self) -> dict[str, str]:
        """Return the environment: ours, and what no option says."""
        return os.environ | ({ROOT_VARIABLE: str(self.root)} if self.root else {})

    def arguments(self) -> list[str]:
        """Return the command line options."""
        options = ["--address", self.address, "--namespace", self.namespace, "--task-queue", self.task_queue]
        if self.config:
            options += ["--config", str(self.config)]
        return [*options, "--json-logs"] if self.json_logs else options
