"""The command line options and environment variables of a worker that we start."""

from dataclasses import dataclass
from pathlib import Path

POLLING_MESSAGE = "worker polls task queue"
"""The first words of the line that a worker logs once it polls."""

ROOT_VARIABLE = "ORGA_TOOLS__FILES__ROOT"


@dataclass(frozen=True)
class WorkerOrder:
    """The settings that a worker gets at its start."""

    address: str | None
    """None for the embedded server: the worker finds it itself and must not use credentials of the environment."""
    namespace: str | None
    task_queue: str
    config: Path | None = None
    root: Path | None = None
    """Folder of the file tools. None takes the configuration's, else the working directory."""
    json_logs: bool = False
    folder_queue: str | None = None
    """A second queue that the worker polls."""
    deployment: str | None = None
    """Name of the deployment that the worker is a version of. None for a worker without a version."""

    def environment(self) -> dict[str, str]:
        """Return the settings that have no command line option, as environment variables."""
        return {ROOT_VARIABLE: str(self.root)} if self.root else {}

    def arguments(self) -> list[str]:
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
