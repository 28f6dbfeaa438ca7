"""A folder of blobs: each file is named after the digest of its bytes. Nothing is ever removed."""

import asyncio
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from orga.activities.adapters.shared_files import write_atomically
from orga.activities.media import MAX_DOCUMENT_BYTES, digest_of
from orga.workflows.types.parts import MEDIA_DIGEST

_DIGEST = re.compile(MEDIA_DIGEST.removesuffix("$"))


class BlobFolder:
    """A `BlobStore`. Several processes may share the folder, also on other machines.

    Files are private to the user. A file gets the time of its latest use, so that unused files can be found by age.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, digest: str) -> Path:
        """Return the path of a blob, whether it exists or not. Raise ValueError if it is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest[:100]!r}: is no digest. Write sha256: and 64 hex characters")
        return self._folder / digest.replace(":", "-")

    def file_sizes(self) -> list[int]:
        """Return the bytes of each file. The folder may not exist yet. Raise OSError if it cannot be read."""
        sizes = list[int]()
        with suppress(FileNotFoundError), os.scandir(self._folder) as files:
            for file in files:
                with suppress(FileNotFoundError):
                    sizes.append(file.stat(follow_symlinks=False).st_size)
        return sizes

    async def put(self, data: bytes, media_type: str) -> str:
        """Write the file, unless it is there already. An OSError names the folder."""
        digest = digest_of(data)
        if await self.get(digest) is None:
            try:
                await asyncio.to_thread(write_atomically, self.path(digest), data, with_folder=True)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self._folder)) from None
        return digest

    async def get(self, digest: str) -> bytes | None:
        """Return the bytes if they still have the digest."""
        data = await asyncio.to_thread(_read, self.path(digest))
        return None if data is None or await asyncio.to_thread(digest_of, data) != digest else data


def _read(path: Path) -> bytes | None:
    """Return the content of a regular file. A link is not followed, because somebody else may have put it there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError:
            return None
        with suppress(OSError):
            os.utime(descriptor)
    return data if len(data) <= MAX_DOCUMENT_BYTES else None
