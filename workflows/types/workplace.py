"""Where a run is at home: its folder, paths as people configure them, and what a command may use there."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError

from orga.workflows.types.record import Border, Record

_LONGEST = 4_000
_LONGEST_NAME = 255

Place = TypeVar("Place", str, Path)


def can_exist(path: str | Path) -> bool:
    """Return whether a system takes it for a path; one that it does not take raises wherever it is used."""
    text = os.fsencode(path)
    return b"\0" not in text and len(text) <= _LONGEST and all(len(name) <= _LONGEST_NAME for name in text.split(b"/"))


def _possible(path: Place) -> Place:
    if not can_exist(path):
        raise ValueError("is no path: it is too long, or holds a NUL character")
    return path


ConfiguredPath = Annotated[Path, AfterValidator(_possible)]
PathOrGlob = Annotated[str, AfterValidator(_possible)]


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


WORKPLACE_MEMO = "orga_folder"
"""The memo key under which the client of the embedded server writes it."""


class Workplace(Record):
    """A folder with its configuration."""

    folder: str
    """Where the command was given."""
    root: str
    """What file tools stay under, without links."""
    config: str | None = None
    """The file, where there is one."""
    digest: str = ""
    """Of that file's content."""
    mark: str = ""
    """Of root and path of the file, short: workers of other marks leave the run alone."""


def workplace_of(value: Any) -> Workplace | None:
    """Return what a memo holds, None where it holds nothing of the kind: whoever starts a run writes its memo."""
    try:
        return None if value is None else Workplace.model_validate(value)
    except ValidationError:
        return None
