"""Files that are written beside the one that they become: whoever reads it sees the old one or the new, never a part.

Nobody can leave a link under a draft's name, which is random, and only its owner may read it.
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
    """A new file."""

    file: BinaryIO
    place: Path

    def become(self, path: Path) -> None:
        """Take the place of that file, or of a link, once the disk has all of it."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.place.replace(path)


@contextmanager
def draft_next_to(path: Path) -> Generator[Draft]:
    """Yield a draft in the folder of `path`; it is removed if it becomes no file.

    Raises:
        OSError: It cannot be written there.
    """
    descriptor, name = tempfile.mkstemp(prefix=".orga-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield Draft(file, Path(name))
    finally:
        with suppress(OSError):
            Path(name).unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file as a whole.

    Raises:
        OSError: It cannot be written there; the one before is as it was.
    """
    with draft_next_to(path) as draft:
        draft.file.write(content)
        draft.become(path)
