"""The `write_file` tool."""

import os
import secrets
import stat
from contextlib import suppress
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
        _replace_in_folder(stop, folder, place.name, data, had)
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


def _replace_in_folder(stop: StopSignal, folder: int, name: str, data: bytes, mode: int | None) -> None:
    temporary = f".orga-{secrets.token_hex(8)}.tmp"
    try:
        with os.fdopen(os.open(temporary, _NEW_FILE_FLAGS, 0o666, dir_fd=folder), "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        stop.begin_effect()
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)
