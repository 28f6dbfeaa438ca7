"""The regular files below a path of a root, hidden and generated ones left out."""

import os
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from orga.activities.adapters.tools.path_errors import path_errors
from orga.activities.adapters.tools.root import Root
from orga.activities.threads import Threads

TIME_LIMIT_S = 15.0
WALKS = Threads("walks", 4)
"""What goes through many files: quick calls never stand behind it."""

_MAX_DEPTH = 100
_FILE, _FOLDER = "file", "folder"
_OF_THE_SYSTEM = frozenset(map(Path, ("/proc", "/sys", "/dev")))
"""Not on any disk: endless to walk, and of no use to a reader."""
_GENERATED = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})

LEFT_OUT = "hidden files and folders, node_modules, __pycache__, venv and symbolic links are left out"


class Walk:
    """One walk, bounded in time; `cut` says whether the time ran out."""

    def __init__(self, root: Root, path: str) -> None:
        self._root = root
        self._path = path
        self.cut = False

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield each file, sorted within its folder: its path from the root, and from the walk's own start."""
        place = self._root.locate(self._path)
        with path_errors(self._path), self._root.folder(place.parent) as parent:
            if stat.S_ISREG(os.stat(place.name or ".", dir_fd=parent, follow_symlinks=False).st_mode):
                yield str(place), place.name
                return
        yield from self._below(place)

    def _below(self, place: PurePosixPath) -> Iterator[tuple[str, str]]:
        ends = time.monotonic() + TIME_LIMIT_S
        with path_errors(self._path), self._root.folder(place) as top:
            for relative in self._files_in(top, "", self._root.path / place, ends):
                yield str(place / relative), relative

    def _files_in(self, folder: int, inside: str, path: Path, ends: float) -> Iterator[str]:
        """Yield the files of an open folder, then those of the folders in it; of these, unreadable ones are left out.

        Not `os.fwalk`, which ends at the first folder that opens and cannot be listed, as some of /proc.
        """
        with os.scandir(folder) as entries:
            found = sorted((each.name, _kind(each)) for each in entries if _is_wanted(each.name))
        for name, kind in found:
            if self._is_over(ends):
                return
            if kind is _FILE:
                yield inside + name
        for name, kind in found:
            if self._is_over(ends):  # also where no folder has a file that is wanted
                return
            if kind is _FOLDER and inside.count("/") < _MAX_DEPTH and path / name not in _OF_THE_SYSTEM:
                with suppress(OSError), _opened(name, folder) as below:
                    yield from self._files_in(below, f"{inside}{name}/", path / name, ends)

    def _is_over(self, ends: float) -> bool:
        self.cut = time.monotonic() > ends
        return self.cut


def _is_wanted(name: str) -> bool:
    return not name.startswith(".") and name not in _GENERATED


def _kind(entry: os.DirEntry[str]) -> str:
    with suppress(OSError):  # gone since it was listed
        if entry.is_dir(follow_symlinks=False):
            return _FOLDER
        if entry.is_file(follow_symlinks=False):
            return _FILE
    return ""


@contextmanager
def _opened(name: str, folder: int) -> Generator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
