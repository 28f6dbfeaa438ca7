"""The folder that file tools cannot leave: its paths, their errors, and a bounded walk."""

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal

from wcmatch import glob
from wcmatch._wcparse import PatternLimitException  # its only home

from orga.activities.adapters.rules import NO_RULES, REFUSAL_TEXT, Rules
from orga.activities.adapters.threads import Threads
from orga.activities.adapters.tools.gitignore import NO_IGNORE_RULES, IgnoreRules
from orga.activities.ports import ToolError

_REFUSALS = {
    errno.ENOENT: ("NotFound", "there is no such file or folder; list_files shows what there is"),
    errno.ENOTDIR: ("NotAFolder", "a part of it is a file, not a folder; list_files shows what there is"),
    errno.EISDIR: ("IsAFolder", "it is a folder; name a file in it, list_files shows them"),
    errno.ELOOP: ("PathRefused", "its symbolic links form a loop or changed while it was opened; name the target"),
    errno.ENAMETOOLONG: ("PathRefused", "the name is too long; use a shorter one"),
    errno.EACCES: ("PermissionDenied", "the worker may not open it; use another file"),
    errno.EPERM: ("PermissionDenied", "the worker may not open it; use another file"),
    errno.EROFS: ("PermissionDenied", "the file system is read-only; write elsewhere"),
}
"""The kind of the error, and the reason with its remedy."""


def path_refusal(path: str, why: str, kind: str = "PathRefused") -> ToolError:
    return ToolError(f"{printable_name(path)}: {why}", kind=kind)


@contextmanager
def path_errors(path: str) -> Generator[None]:
    """Turn an `OSError` into a `ToolError` about `path`. One not in `_REFUSALS` may be temporary: retryable."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise ToolError(f"{printable_name(path)}: {error.strerror}", kind="FileError", retryable=True) from error
        kind, why = _REFUSALS[error.errno]
        raise path_refusal(path, why, kind) from error


def printable_name(name: str) -> str:
    r"""Return a name on one line. Control and undecodable characters become escapes such as `\x0a`."""
    shown = name if len(name) <= 500 else name[:500] + "…"
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in shown)


FILE_THREADS = Threads("files", 4)
"""Threads for work that opens one file at a time."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK, so that opening a FIFO that has replaced the file does not hang.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_PATH_BYTES = 4_000
_MAX_NAME_BYTES = 255


class FileRoot:
    """A folder that paths cannot leave. Links may be used as long as their targets are inside. `..` is refused, because
    policies judge a path as it is written, and `docs/../src/a.py` begins with `docs/`.

    A path is resolved first. The result is then opened part by part from the root's descriptor without following links.
    So a link that appears after the check makes the call fail, and cannot lead outside.
    """

    def __init__(self, path: Path, rules: Rules = NO_RULES) -> None:
        """Keep the folder, and the files of rules no tool may write. Raise ValueError if there is no such folder."""
        self.path = path.resolve()
        self.rules = rules
        if not self.path.is_dir():
            raise ValueError(f"{path} is not a folder; create it or name another")

    def locate(self, path: str) -> PurePosixPath:
        """Return the target of `path`, relative to the root and without links. It need not exist.

        `~` means a home folder, as people write it in tasks, and `./~` a name in the root.
        """
        _refuse_unusable(path)
        with path_errors(path):
            # unlike `Path.expanduser`, this leaves `~name` as it is if there is no such user
            real = Path(os.path.realpath(self.path / os.path.expanduser(path)))  # noqa: PTH111
        if not real.is_relative_to(self.path):
            raise path_refusal(path, "it leads outside the root; use one relative to the root, such as . or docs/a.md")
        return PurePosixPath(real.relative_to(self.path))

    @contextmanager
    def folder(self, target: PurePosixPath) -> Generator[int]:
        """Open a folder as a descriptor, given by its path from `locate`."""
        current = os.open(self.path, _FOLDER_FLAGS)
        try:
            for part in target.parts:
                current = _open_subfolder(current, part)
            yield current
        finally:
            os.close(current)

    @contextmanager
    def folder_to_write(self, path: str, target: PurePosixPath, *, makes_folders: bool = True) -> Generator[int]:
        """Open the folder of a file, or create it. Raise ToolError if it is a file of rules, or in such a folder.

        Args:
            path: The name of the file for errors.
            target: Its path from `locate`.
        """
        if self.rules.is_forbidden(self.path / target, self.path):
            raise path_refusal(path, REFUSAL_TEXT)
        rules = self.rules.identities()
        with ExitStack() as opened:
            current = os.open(self.path, _FOLDER_FLAGS)
            opened.callback(lambda: os.close(current))  # whichever is current at the end
            _refuse_rules(path, os.fstat(current), rules)
            for part in target.parent.parts:
                if makes_folders:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=current)
                current = _open_subfolder(current, part)
                _refuse_rules(path, os.fstat(current), rules)
            with suppress(FileNotFoundError):
                _refuse_rules(path, os.stat(target.name, dir_fd=current, follow_symlinks=False), rules)
            yield current

    def open_file(self, path: str) -> BinaryIO:
        """Open an existing regular file for reading. Folders, devices, FIFOs and sockets are refused."""
        target = self.locate(path)
        with path_errors(path), self.folder(target.parent) as folder:
            return open_in_folder(path, target.name, folder)


def open_in_folder(path: str, name: str, folder: int) -> BinaryIO:
    """Open a file of an open folder as `FileRoot.open_file` does. `path` is its name for errors."""
    # Check before opening, because opening a device can have effects.
    refuse_irregular(path, os.stat(name or ".", dir_fd=folder, follow_symlinks=False))
    opened = os.fdopen(os.open(name, _FILE_FLAGS, dir_fd=folder), "rb")
    try:
        refuse_irregular(path, os.fstat(opened.fileno()))
    except BaseException:
        opened.close()
        raise
    return opened


def refuse_irregular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise path_refusal(path, "it is a folder; name a file in it, list_files shows them", "IsAFolder")
    if not stat.S_ISREG(status.st_mode):
        raise path_refusal(path, "it is a device, FIFO or socket; only regular files can be used")


def _refuse_unusable(path: str) -> None:
    try:
        names = path.split("/")
        sizes = [len(os.fsencode(name)) for name in names]
    except UnicodeEncodeError:
        raise path_refusal(path, "it is not valid Unicode; copy the name from list_files") from None
    if "\0" in path:
        raise path_refusal(path, "it contains a NUL character; remove it")
    if ".." in names:
        raise path_refusal(path, "it goes up by `..`; use a path relative to the root, such as . or docs/a.md")
    if max(sizes) > _MAX_NAME_BYTES or sum(sizes) + len(sizes) > _MAX_PATH_BYTES:  # a slash takes one byte
        raise path_refusal(path, f"the name is too long; a name has at most {_MAX_NAME_BYTES} bytes")


def _open_subfolder(folder: int, part: str) -> int:
    """Open a folder in an open folder, and close the latter."""
    inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
    os.close(folder)
    return inner


def _refuse_rules(path: str, status: os.stat_result, rules: Collection[tuple[int, int]]) -> None:
    if (status.st_dev, status.st_ino) in rules:
        raise path_refusal(path, REFUSAL_TEXT)


def files_root(path: Path, rules: Rules = NO_RULES) -> FileRoot:
    """Return the root of the file tools. Raise ValueError, with the configuration key, if there is no such folder."""
    try:
        return FileRoot(path, rules)
    except ValueError as error:
        raise ValueError(f"tools.files.root: {error}") from None


_GLOB_FLAGS = glob.GLOBSTAR | glob.BRACE | glob.MATCHBASE | glob.DOTGLOB
_MAX_PATTERN_CHARS = 200
_MAX_STAR_STARS = 3
"""Limit for `**` in a pattern. Each further one makes a match five times slower, as measured."""
_MAX_ALTERNATIVES = 100

PATTERN_DESCRIPTION = (
    "Glob below `path`: `*` stays within a folder, `**` crosses folders, `{a,b}` are alternatives; "
    "a pattern without a slash matches file names at any depth (`*.py`)."
)


def path_filter(pattern: str | None) -> Callable[[str], bool]:
    """Return a predicate for paths relative to the start of a search.

    Raise ToolError (InvalidPattern) if matching could take too long.
    """
    if pattern is None:
        return lambda path: True
    plain = pattern.removeprefix("./")
    if len(plain) <= _MAX_PATTERN_CHARS and plain.count("**") <= _MAX_STAR_STARS:
        with suppress(PatternLimitException):
            matcher = glob.compile(plain, flags=_GLOB_FLAGS, limit=_MAX_ALTERNATIVES)
            return lambda path: bool(matcher.match(path))
    limits = f"{_MAX_PATTERN_CHARS} characters, {_MAX_STAR_STARS} `**` and {_MAX_ALTERNATIVES} alternatives"
    raise ToolError(f"pattern {pattern[:80]!r}: more than {limits}; use a simpler one", kind="InvalidPattern")


TIME_LIMIT_S = 15.0
"""Seconds for one walk."""

WALK_THREADS = Threads("walks", 4)
"""Threads for work on many files, so that quick calls never wait for it."""

_MAX_DEPTH = 100
_SYSTEM_FOLDERS = frozenset(map(Path, ("/proc", "/sys", "/dev")))
"""Folders that are not on a disk: a walk would be endless and useless."""
_GENERATED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})

OMISSIONS_TEXT = (
    "hidden files and folders, those that .gitignore names, node_modules, __pycache__, venv and symbolic links "
    "are left out"
)
INCLUDE_IGNORED_DESCRIPTION = "Include files that .gitignore names."


@dataclass(frozen=True, slots=True)
class WalkedFile:
    """A file that a walk has reached. It can be opened until the walk goes on."""

    path: str
    """Relative to the root."""
    relative: str
    """Relative to the start of the walk."""
    name: str
    folder: int
    """Descriptor of its folder. Opening each file by its path from the root takes longer than the rest of a search."""

    def open(self) -> BinaryIO:
        return open_in_folder(self.path, self.name, self.folder)


class FileWalk:
    """One walk, bounded in time. `cut` is True if the time ran out.

    It leaves out files and folders that a `.gitignore` in or below the root names. If these name the start
    or a folder above it, those above the named one have no effect.
    """

    def __init__(self, root: FileRoot, path: str, *, includes_ignored: bool = False) -> None:
        self._root = root
        self._path = path
        self._includes_ignored = includes_ignored
        self.cut = False

    def files(self) -> Iterator[WalkedFile]:
        """Yield each file, sorted within its folder."""
        target = self._root.locate(self._path)
        with path_errors(self._path), self._root.folder(target.parent) as parent:
            if stat.S_ISREG(os.stat(target.name or ".", dir_fd=parent, follow_symlinks=False).st_mode):
                yield WalkedFile(str(target), target.name, target.name, parent)
                return
        yield from self._files_below(target)

    def _files_below(self, target: PurePosixPath) -> Iterator[WalkedFile]:
        ends = time.monotonic() + TIME_LIMIT_S
        base = f"{target}/" if target.name else ""
        with path_errors(self._path), self._root.folder(target) as top:
            for folder, prefix, name in self._files_in(top, base, self._outer_rules(target), ends):
                yield WalkedFile(prefix + name, (prefix + name)[len(base) :], name, folder)

    def _outer_rules(self, target: PurePosixPath) -> IgnoreRules:
        """Return the ignore rules of the folders above the start."""
        rules = NO_IGNORE_RULES
        if self._includes_ignored:
            return rules
        for folder in reversed(target.parents[: len(target.parts)]):
            with self._root.folder(folder) as opened:
                rules = rules.in_folder("" if folder == PurePosixPath() else f"{folder}/", opened)
            if rules.ignores(str(PurePosixPath(*target.parts[: len(folder.parts) + 1])), is_folder=True):
                rules = NO_IGNORE_RULES
        return rules

    def _files_in(self, folder: int, prefix: str, rules: IgnoreRules, ends: float) -> Iterator[tuple[int, str, str]]:
        """Yield the files of an open folder, then those of its subfolders, each as (folder, its path with `/`, name).

        Args:
            prefix: The path of the open folder from the root, with `/` at its end, or "" for the root.
            ends: Time at which the walk is cut, by the monotonic clock.

        Unreadable subfolders are skipped. `os.fwalk` would end at the first folder that can be opened but not listed,
        such as some in /proc.
        """
        with os.scandir(folder) as entries:
            shown = sorted(
                (entry.name, _entry_kind(entry))
                for entry in entries
                if not entry.name.startswith(".") and entry.name not in _GENERATED_FOLDERS
            )
        if not self._includes_ignored:
            rules = rules.in_folder(prefix, folder)
        for name, kind in shown:
            if self._is_over(ends):
                return
            if kind == "file" and not rules.ignores(prefix + name, is_folder=False):
                yield folder, prefix, name
        for name, kind in shown:
            if self._is_over(ends):  # again, because the folder before may have taken long
                return
            path = prefix + name
            is_in_bounds = path.count("/") < _MAX_DEPTH and self._root.path / path not in _SYSTEM_FOLDERS
            if kind == "folder" and is_in_bounds and not rules.ignores(path, is_folder=True):
                with suppress(OSError), ExitStack() as opened:
                    below = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
                    opened.callback(os.close, below)
                    yield from self._files_in(below, f"{path}/", rules, ends)

    def _is_over(self, ends: float) -> bool:
        self.cut = time.monotonic() > ends
        return self.cut


def _entry_kind(entry: os.DirEntry[str]) -> Literal["folder", "file", ""]:
    with suppress(OSError):  # the entry is gone since it was listed
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        if entry.is_file(follow_symlinks=False):
            return "file"
    return ""
