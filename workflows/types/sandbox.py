"""What a command may use, as people configure it: limits and isolation."""

from typing import Literal

from pydantic import Field

from workflows.types.record import Border

Isolation = Literal["none", "bubblewrap"]
"""`bubblewrap`: namespaces of its own, in which all but one folder is read-only and there is no network."""


class Limits(Border):
    """Null lifts a limit. All but `processes` are of each process: what it asks for above one fails."""

    cpu_s: float | None = Field(default=120, gt=0, le=86_400)
    """Seconds of processor time, rounded up; the process that used them is killed."""
    memory_bytes: int | None = Field(default=4_000_000_000, ge=16_000_000)
    """Of address space, which is more than what is in use."""
    file_bytes: int | None = Field(default=100_000_000, ge=0)
    """Of each file it writes."""
    processes: int | None = Field(default=256, ge=1)
    """That run at once, of all that the command started. They are counted several times a second, so a moment may see
    more; then all are killed. (The kernel's own limit counts all that a user runs, and does not hold for root.)"""
    open_files: int | None = Field(default=256, ge=16)


class Sandbox(Border):
    """What stands around a command."""

    limits: Limits = Limits()
    isolation: Isolation = "none"
    network: bool = False
    """Without isolation there is always one."""

    @property
    def is_network_denied_in_vain(self) -> bool:
        """Whether it says `network = false` and there is one all the same."""
        return self.isolation == "none" and "network" in self.model_fields_set and not self.network
