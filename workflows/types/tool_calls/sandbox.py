"""Limits and isolation of a command that a worker starts, and types for configured paths."""

import os
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field

from orga.workflows.types.record import CheckedInput

_MAX_PATH_BYTES = 4_000

_MAX_NAME_BYTES = 255
"""Bytes between two slashes. Common file systems take no more."""

PathLike = TypeVar("PathLike", str, Path)


def can_exist(path: str | Path) -> bool:
    """Return True if the operating system accepts this as a path. To use another text as a path raises an error."""
    text = os.fsencode(path)
    is_short = len(text) <= _MAX_PATH_BYTES and all(len(name) <= _MAX_NAME_BYTES for name in text.split(b"/"))
    return is_short and b"\0" not in text


def _checked_path(path: PathLike) -> PathLike:
    if not can_exist(path):
        raise ValueError("is no path: it is too long, or holds a NUL character")
    return path


ConfiguredPath = Annotated[Path, AfterValidator(_checked_path)]
PathOrGlob = Annotated[str, AfterValidator(_checked_path)]

Isolation = Literal["none", "bubblewrap"]
"""`bubblewrap`: namespaces of its own, one folder that can be written, and no network unless `network` is true."""


class SandboxLimits(CheckedInput):
    """Limits of a command. Null lifts a limit. All but `processes` apply to each process separately."""

    cpu_s: float | None = Field(default=120, gt=0, le=86_400)
    """Seconds of processor time, rounded up. A process that reaches them is killed."""
    memory_bytes: int | None = Field(default=4_000_000_000, ge=16_000_000)
    """Bytes of address space, which is more than the memory in use."""
    file_bytes: int | None = Field(default=100_000_000, ge=0)
    """Bytes of each file that it writes."""
    processes: int | None = Field(default=256, ge=1)
    """Processes of the command at the same time. They are counted several times a second, so for a moment there may be
    more. Then all are killed. (The kernel's own limit counts all processes of a user, and does not apply to root.)
    """
    open_files: int | None = Field(default=256, ge=16)
    """Open files and connections."""


class Sandbox(CheckedInput):
    """The sandbox of a command."""

    limits: SandboxLimits = SandboxLimits()
    isolation: Isolation = "none"
    """`bubblewrap`: the command sees its folder and little else of the machine."""
    network: bool = False
    """True if the command has a network. Without isolation it always has one."""

    @property
    def is_network_denied_in_vain(self) -> bool:
        """True if `network = false` is set without isolation, where it has no effect."""
        return self.isolation == "none" and "network" in self.model_fields_set and not self.network
