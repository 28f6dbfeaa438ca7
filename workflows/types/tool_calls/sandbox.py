"""What stands around a command that a worker starts, and the paths that its configuration names."""

import os
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field

from orga.workflows.types.record import CheckedInput

_LONGEST, _LONGEST_NAME = 4_000, 255

PathLike = TypeVar("PathLike", str, Path)


def can_exist(path: str | Path) -> bool:
    """Return whether a system takes it for a path; one that it does not take raises wherever it is used."""
    text = os.fsencode(path)
    return b"\0" not in text and len(text) <= _LONGEST and all(len(name) <= _LONGEST_NAME for name in text.split(b"/"))


def _checked_path(path: PathLike) -> PathLike:
    if not can_exist(path):
        raise ValueError("is no path: it is too long, or holds a NUL character")
    return path


ConfiguredPath = Annotated[Path, AfterValidator(_checked_path)]
PathOrGlob = Annotated[str, AfterValidator(_checked_path)]


Isolation = Literal["none", "bubblewrap"]
"""`bubblewrap`: namespaces of its own, in which all but one folder is read-only and there is no network."""


class SandboxLimits(CheckedInput):
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
    """Files and connections that it has open at once."""


class Sandbox(CheckedInput):
    """What stands around a command."""

    limits: SandboxLimits = SandboxLimits()
    isolation: Isolation = "none"
    """`bubblewrap`: the command sees its folder and little else of the machine."""
    network: bool = False
    """Without isolation there is always one."""

    @property
    def is_network_denied_in_vain(self) -> bool:
        """Whether it says `network = false` and there is one all the same."""
        return self.isolation == "none" and "network" in self.model_fields_set and not self.network
