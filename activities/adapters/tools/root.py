"""The folder that file tools cannot leave."""

import os
import stat
from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from orga.activities.adapters.rules import NO_RULES, REFUSAL, Rules
from orga.activities.adapters.tools.path_errors import path_errors, refused
from orga.activities.threads import Threads

FILES = Threads("files", 4)
"""What opens one file at a time."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that took the file's place must not hang.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_PATH_BYTES = 4_000
_MAX_NAME_BYTES = 255


class Root:
    """A path counts by where it leads: links may be used as long as they stay inside. `..` may not: policies judge a
    path as it is written, and `docs/../src/a.py` begins with `docs/`.

    A path is resolved first; the result is then opened part by part from the root's descriptor without
    following any link, so a link that is put in place after the check makes the call fail, not escape.
    """

    def __init__(self, path: Path, rules: Rules = NO_RULES) -> None:
        """Take the folder, and what in it no tool writes.

        Raises:
            ValueError: There is no such folder.
        """
        self.path = path.resolve()
        self.rules = rules
        if not self.path.is_dir():
            raise ValueError(f"{path} is not a folder; create it or name another")

    def locate(self, path: str) -> PurePosixPath:
        """Return where `path` leads, relative to the root and free of links. It need not exist.

        `~` is somebody's home folder, as people write it in tasks, and `./~` a name in the root.
        """
        _refuse_unusable(path)
        with path_errors(path):
            real = Path(os.path.realpath(self.path / os.path.expanduser(path)))  # noqa: PTH111 - of no such user: as it is
        if not real.is_relative_to(self.path):
            raise refused(path, "it leads outside the root; use a path relative to the root, such as . or docs/a.md")
        return PurePosixPath(real.relative_to(self.path))

    @contextmanager
    def folder(self, place: PurePosixPath) -> Generator[int]:
        """Open a located folder as a descriptor."""
        current = os.open(self.path, _FOLDER)
        try:
            for part in place.parts:
                current = _entered(current, part)
            yield current
        finally:
            os.close(current)

    @contextmanager
    def folder_to_write(self, path: str, place: PurePosixPath) -> Generator[int]:
        """Open the folder of a located file, made with its parents, as a descriptor.

        Raises:
            ToolError: The file is, or stands in, what no tool writes: by its path, or by any other name of the same.
        """
        if self.rules.forbid(self.path / place, self.path):
            raise refused(path, REFUSAL)
        rules = self.rules.identities()
        with ExitStack() as opened:
            current = os.open(self.path, _FOLDER)
            opened.callback(lambda: os.close(current))
            _refuse_rules(path, os.fstat(current), rules)
            for part in place.parent.parts:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
                current = _entered(current, part)
                _refuse_rules(path, os.fstat(current), rules)
            with suppress(FileNotFoundError):
                _refuse_rules(path, os.stat(place.name, dir_fd=current, follow_symlinks=False), rules)
            yield current

    def open_file(self, path: str) -> BinaryIO:
        """Open an existing regular file for reading; folders, devices, FIFOs and sockets are refused."""
        place = self.locate(path)
        with path_errors(path), self.folder(place.parent) as folder:
            # Opening a device can have effects of its own, so it is looked at before it is opened.
            refuse_irregular(path, os.stat(place.name or ".", dir_fd=folder, follow_symlinks=False))
            opened = os.fdopen(os.open(place.name, _FILE, dir_fd=folder), "rb")
        try:
            refuse_irregular(path, os.fstat(opened.fileno()))
        except BaseException:
            opened.close()
            raise
        return opened


def refuse_irregular(path: str, status: os.stat_result) -> None:
    """Raise unless `status` is of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise refused(path, "it is a folder; name a file in it, list_files shows them", "IsAFolder")
    if not stat.S_ISREG(status.st_mode):
        raise refused(path, "it is a device, FIFO or socket; only regular files can be used")


def _refuse_unusable(path: str) -> None:
    try:
        names = path.split("/")
        parts = [len(os.fsencode(name)) for name in names]
    except UnicodeEncodeError:
        raise refused(path, "it is not valid Unicode; copy the name from list_files") from None
    if "\0" in path:
        raise refused(path, "it contains a NUL character; remove it")
    if ".." in names:
        raise refused(path, "it goes up by `..`; use a path relative to the root, such as . or docs/a.md")
    if max(parts) > _MAX_NAME_BYTES or sum(parts) + len(parts) > _MAX_PATH_BYTES:
        raise refused(path, f"the name is too long; a name has at most {_MAX_NAME_BYTES} bytes")


def _entered(folder: int, part: str) -> int:
    """Open a folder in another, which is closed."""
    inner = os.open(part, _FOLDER, dir_fd=folder)
    os.close(folder)
    return inner


def _refuse_rules(path: str, status: os.stat_result, rules: Collection[tuple[int, int]]) -> None:
    if (status.st_dev, status.st_ino) in rules:
        raise refused(path, REFUSAL)


def files_root(path: Path, rules: Rules = NO_RULES) -> Root:
    """Return the root of the file tools.

    Raises:
        ValueError: There is no such folder, with the key that names it.
    """
    try:
        return Root(path, rules)
    except ValueError as error:
        raise ValueError(f"tools.files.root: {error}") from None
