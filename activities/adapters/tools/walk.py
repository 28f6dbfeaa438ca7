"""The regular files below a path of a root, hidden and generated ones left out."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import PurePosixPath

from orga.activities.adapters.tools.path_errors import path_errors
from orga.activities.adapters.tools.root import Root
from orga.activities.threads import Threads

TIME_LIMIT_S = 15.0
WALKS = Threads("walks", 4)
"""What goes through many files: quick calls never stand behind it."""

_MAX_DEPTH = 100
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
            for folder, folders, names, here in os.fwalk(".", dir_fd=top):
                if self._is_over(ends):  # also where no folder has a file that is wanted
                    return
                inside = folder[2:]
                deep = inside.count("/") >= _MAX_DEPTH
                folders[:] = [] if deep else sorted(filter(_is_wanted, folders))
                for name in sorted(filter(_is_wanted, names)):
                    if self._is_over(ends):
                        return
                    if _is_regular(name, here):
                        relative = f"{inside}/{name}" if inside else name
                        yield str(place / relative), relative

    def _is_over(self, ends: float) -> bool:
        self.cut = time.monotonic() > ends
        return self.cut


def _is_wanted(name: str) -> bool:
    return not name.startswith(".") and name not in _GENERATED


def _is_regular(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:  # gone since it was listed
        return False
