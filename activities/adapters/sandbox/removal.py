"""Removes the files that a command left. They may be nested deeper than a path or a recursion can reach."""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path

TIME_LIMIT_S = 5.0
"""Seconds to remove one folder with its content."""

_log = logging.getLogger(__name__)
_PATH_FLAG: int | None = getattr(os, "O_PATH", None)
"""The flag that opens a folder even if its owner may not read it. Only Linux has it; elsewhere such a folder stays."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove_folder(path: Path) -> None:
    """Remove a folder of ours with its content. Files that cannot be removed in time stay and are logged."""
    try:
        _empty_folder(path, time.monotonic() + TIME_LIMIT_S)
        path.rmdir()
    except OSError as error:
        _log.warning("%s was not removed, or not all of it: %s", path, error.strerror or error)


def _empty_folder(path: Path, ends: float) -> None:
    cursor = _FolderCursor(path)
    try:
        unvisited = [_remove_files(cursor.folder, ends)]  # subfolders of each folder from the top to the current one
        while len(unvisited) > 1 or unvisited[0]:
            _check_deadline(ends)
            if not unvisited[-1]:
                unvisited.pop()
                cursor.leave_and_remove()
                continue
            with suppress(OSError):  # a folder that cannot be entered stays, so removing its parent fails and is logged
                cursor.enter(unvisited[-1].pop())
                unvisited.append([])  # now, because the cursor has moved, and listing the files may fail
                unvisited[-1] += _remove_files(cursor.folder, ends)
    finally:
        os.close(cursor.folder)


class _FolderCursor:
    """Moves through a tree of folders. `folder` is the descriptor of the current folder, which is open."""

    def __init__(self, top: Path) -> None:
        self.folder = unlock_folder(str(top), None)
        self._above: list[tuple[str, os.stat_result]] = []
        """The name of each folder from the top to the current one, and the status of its parent."""

    def enter(self, name: str) -> None:
        inner, parent = unlock_folder(name, self.folder), os.fstat(self.folder)
        self._move_to(inner)
        self._above.append((name, parent))

    def leave_and_remove(self) -> None:
        """Move to the parent, and remove the folder if it is empty. Raise OSError if the parent has changed."""
        name, parent = self._above.pop()
        self._move_to(os.open("..", _FOLDER_FLAGS, dir_fd=self.folder))
        if not os.path.samestat(os.fstat(self.folder), parent):
            raise OSError("a folder in it was moved meanwhile")
        with suppress(OSError):
            os.rmdir(name, dir_fd=self.folder)

    def _move_to(self, folder: int) -> None:
        os.close(self.folder)
        self.folder = folder


def _remove_files(folder: int, ends: float) -> list[str]:
    """Remove the files of the folder and return the names of its subfolders."""
    folders: list[str] = []
    for name in os.listdir(folder):
        _check_deadline(ends)
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError:  # the error for a folder differs between systems; `enter` refuses anything but a folder
            folders.append(name)
    return folders


def unlock_folder(name: str, parent: int | None) -> int:
    """Open a folder, but not through a link. On Linux, first give its owner all permissions on it."""
    if _PATH_FLAG is None:
        return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
    located = os.open(name, _PATH_FLAG | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        path = f"/proc/self/fd/{located}"  # a descriptor from O_PATH itself permits neither chmod nor listing
        Path(path).chmod(0o700)
        return os.open(path, _FOLDER_FLAGS)
    finally:
        os.close(located)


def _check_deadline(ends: float) -> None:
    if time.monotonic() > ends:
        raise TimeoutError(f"it took longer than {TIME_LIMIT_S:g} s")
