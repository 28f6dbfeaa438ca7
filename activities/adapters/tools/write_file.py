"""The `write_file` tool."""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pydantic import Field

from orga.activities.adapters.tools.call_threads import StopSignal, run_stoppable
from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.adapters.tools.root import (
    FILE_THREADS,
    FileRoot,
    path_errors,
    path_refusal,
    printable_name,
    refuse_irregular,
)
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import ToolOutput, ToolSpec

_MAX_BYTES = 1_000_000
LOCK_WAIT_S = 10.0
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _WriteParameters(Parameters):
    path: str = Field(description="File to write, relative to the root; missing folders are made.")
    content: str = Field(description="The whole new content.")


class WriteFile:
    """Replaces whole files. It cannot append, because a repetition after a lost answer would append twice."""

    def __init__(self, root: FileRoot) -> None:
        self._root = root
        self.spec = ToolSpec(
            name="write_file",
            description=f"Create a text file or replace its whole content, at most {_MAX_BYTES:,} bytes of UTF-8.",
            parameters=_WriteParameters.json_schema(),
            effect="idempotent",
            main_argument="path",
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Replace the file. Readers see the old or the new content, never a part."""
        parameters = _WriteParameters.parse(arguments)
        data = _encoded_content(parameters.content)
        verb = "Replaced" if await replace_file(self._root, parameters.path, data) else "Created"
        return ToolOutput(content=f"{verb} {printable_name(parameters.path)} ({len(data):,} bytes)")


async def replace_file(root: FileRoot, path: str, data: bytes) -> bool:
    """Write a whole file below the root, with missing folders, and return whether there was one before.

    After a cancellation nothing is replaced, because the file could be newer by then.

    Raises:
        ToolError: The file must not or cannot be written.
    """
    return await run_stoppable(FILE_THREADS, _write_replacing, root, path, data)


def _write_replacing(stop: StopSignal, root: FileRoot, path: str, data: bytes) -> bool:
    place = root.locate(path)
    if not place.name:
        raise path_refusal(path, "it is a folder; name a file in it", "IsAFolder")
    with path_errors(path), root.folder_to_write(path, place) as folder:
        had = _existing_mode(path, place, folder)
        replace_in_folder(stop, FolderEntry(path, folder, place.name), NewContent(data, had))
    return had is not None


def _encoded_content(content: str) -> bytes:
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"content is not valid Unicode at character {error.start}", kind="InvalidArguments") from None
    if len(data) > _MAX_BYTES:
        why = f"content has {len(data):,} bytes, at most {_MAX_BYTES:,} can be written; split it into several files"
        raise ToolError(why, kind="InvalidArguments")
    return data


def _existing_mode(path: str, place: PurePosixPath, folder: int) -> int | None:
    try:
        status = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    refuse_irregular(path, status)
    return stat.S_IMODE(status.st_mode)


@dataclass(frozen=True)
class FolderEntry:
    path: str
    """The name for errors."""
    folder: int
    """Descriptor of the open folder."""
    name: str


@contextmanager
def _locked_folder(entry: FolderEntry, stop: StopSignal) -> Generator[None]:
    """Keep the file tools of all workers of this machine from replacing files of a folder until the block ends."""
    ends = time.monotonic() + LOCK_WAIT_S
    while not _try_lock(entry.folder):
        stop.check()
        if time.monotonic() > ends:
            raise ToolError(
                f"{printable_name(entry.path)}: another process keeps its folder locked; try again later",
                kind="FileBusy",
                retryable=True,
                acted="no",
            )
        time.sleep(0.01)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(entry.folder, fcntl.LOCK_UN)


def _try_lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # some network file systems cannot lock a folder
    return True


@dataclass(frozen=True)
class NewContent:
    data: bytes
    mode: int | None
    """Permission bits. None for a new file."""


def replace_in_folder(
    stop: StopSignal, entry: FolderEntry, new: NewContent, is_due: Callable[[], bool] = lambda: True
) -> bool:
    """Replace a file, and return whether it was replaced.

    `is_due` is asked when everything is written and no other file tool can replace the file.
    """
    folder, temporary = entry.folder, f".orga-{secrets.token_hex(8)}.tmp"
    try:
        with os.fdopen(os.open(temporary, _NEW_FILE_FLAGS, 0o666, dir_fd=folder), "wb") as file:
            file.write(new.data)
            if new.mode is not None:
                os.fchmod(file.fileno(), new.mode)
            file.flush()
            os.fsync(file.fileno())
        with _locked_folder(entry, stop):
            replaces = is_due()
            if replaces:
                stop.begin_effect()
                os.replace(temporary, entry.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(temporary, folder)
        raise
    if not replaces:
        _remove(temporary, folder)
        return False
    os.fsync(folder)
    return True


def _remove(temporary: str, folder: int) -> None:
    with suppress(OSError):
        os.unlink(temporary, dir_fd=folder)
