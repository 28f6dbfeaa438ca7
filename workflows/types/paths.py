"""Paths as people configure them."""

import os
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator

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
