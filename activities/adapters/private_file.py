"""Files that only their owner reads, and that several processes share."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Write a whole file, and its folder if there is none. A concurrent reader sees the old file or the new one.

    Raises:
        OSError: The previous file is unchanged.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=".orga-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    finally:
        with suppress(OSError):
            Path(draft).unlink()
