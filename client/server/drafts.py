"""Writes files through a draft next to them, so that a reader sees the old file or the new one, but never a part.

A draft's name is random, so nobody can place a link there. Only its owner can read it.
"""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True)
class Draft:
    file: BinaryIO
    path: Path

    def move_to(self, target: Path) -> None:
        """Replace that file, or a link, once the whole draft is on disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.path.replace(target)


@contextmanager
def draft_next_to(path: Path) -> Generator[Draft]:
    """Yield a draft in the folder of `path`, removed unless it becomes a file. Raise OSError if that is impossible."""
    descriptor, name = tempfile.mkstemp(prefix=".orga-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield Draft(file, Path(name))
    finally:
        with suppress(OSError):
            Path(name).unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file. After an OSError the previous one is unchanged."""
    with draft_next_to(path) as draft:
        draft.file.write(content)
        draft.move_to(path)
