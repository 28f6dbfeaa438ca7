"""The folder that file tools cannot leave: resolves and opens paths, reports their errors, and walks through files."""

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
from wcmatch._wcparse import PatternLimitException  # wcmatch exports it nowhere else

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
"""By error number: the kind of the ToolError, and the reason with its remedy."""


def path_refusal(path: str, why: str, kind: str = "PathRefused") -> ToolError:
    return ToolError(f"{printable_name(path)}: {why}", kind=kind)


@contextmanager
def path_errors(path: str) -> Generator[None]:
    """Turn an `OSError` into a `ToolError` about `path`. An error that is not in `_REFUSALS` is retryable."""
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
    """A folder that paths cannot leave. Links are allowed if their targets are inside.

    `..` is refused, because policies judge a path as it is written: `docs/../src/a.py` begins with `docs/`. A path is
    first resolved and checked. Then its parts are opened one by one from the root, without following links. So a link
    that appears after the check makes the call fail, and cannot lead outside.
    """

    def __init__(self, path: Path, rules: Rules = NO_RULES) -> None:
        """Take the folder, and the rules, which no tool may write. Raise ValueError if there is no such folder."""
        self.path = path.resolve()
        self.rules = rules
        if not self.path.is_dir():
            raise ValueError(f"{path} is not a folder; create it or name another")

    def locate(self, path: str) -> PurePosixPath:
        """Return the target of `path`, relative to the root and with links resolved. The target need not exist.

        `~` means a home folder, because people write it in tasks. `./~` is a file in the root.
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
        """Open the folder at a path from `locate`, and yield its descriptor."""
        current = os.open(self.path, _FOLDER_FLAGS)
        try:
            for part in target.parts:
                current = _open_subfolder(current, part)
            yield current
        finally:
            os.close(current)

    @contextmanager
    def folder_to_write(self, path: str, target: PurePosixPath, *, makes_folders: bool = True) -> Generator[int]:
        """Open the folder of a file that is to be written. Raise ToolError if the file belongs to the rules.

        Args:
            path: The path of the file as the model wrote it, for errors.
            target: The path of the file from `locate`.
        """
        if self.rules.is_forbidden(self.path / target, self.path):
            raise path_refusal(path, REFUSAL_TEXT)
        # a hard link or a mount can give a rule another path, so what is opened is also compared by identity
        identities = self.rules.identities()
        current = os.open(self.path, _FOLDER_FLAGS)
        try:
            _refuse_if_rule(path, os.fstat(current), identities)
            for part in target.parent.parts:
                if makes_folders:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=current)
                current = _open_subfolder(current, part)
                _refuse_if_rule(path, os.fstat(current), identities)
            with suppress(FileNotFoundError):
                _refuse_if_rule(path, os.stat(target.name, dir_fd=current, follow_symlinks=False), identities)
            yield current
        finally:
            os.close(current)

    def open_file(self, path: str) -> BinaryIO:
        """Open an existing regular file for reading. Folders, devices, FIFOs and sockets are refused."""
        target = self.locate(path)
        with path_errors(path), self.folder(target.parent) as folder:
            return open_in_folder(path, target.name, folder)


def open_in_folder(path: str, name: str, folder: int) -> BinaryIO:
    """Open a regular file in an open folder for reading. `path` is the path for errors.

    The name "" means the root itself, which is refused like any folder.
    """
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
        limits = f"a name has at most {_MAX_NAME_BYTES} bytes, a path {_MAX_PATH_BYTES}"
        raise path_refusal(path, f"it is too long; {limits}")


def _open_subfolder(folder: int, part: str) -> int:
    """Open a folder inside an open folder, and close the outer one."""
    inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
    os.close(folder)
    return inner


def _refuse_if_rule(path: str, status: os.stat_result, identities: Collection[tuple[int, int]]) -> None:
    """Raise ToolError if the file or folder with this status is one of the rules, by its identity."""
    if (status.st_dev, status.st_ino) in identities:
        raise path_refusal(path, REFUSAL_TEXT)


def files_root(path: Path, rules: Rules = NO_RULES) -> FileRoot:
    """Return the root of the file tools. If there is no such folder, raise ValueError with the configuration key."""
    try:
        return FileRoot(path, rules)
    except ValueError as error:
        raise ValueError(f"tools.files.root: {error}") from None


_GLOB_FLAGS = glob.GLOBSTAR | glob.BRACE | glob.MATCHBASE | glob.DOTGLOB
_MAX_PATTERN_CHARS = 200
_MAX_STAR_STARS = 3
"""The most `**` in a pattern. In a measurement, each further `**` made a match five times slower."""
_MAX_ALTERNATIVES = 100

PATTERN_DESCRIPTION = (
    "Glob below `path`: `*` stays within a folder, `**` crosses folders, `{a,b}` are alternatives; "
    "a pattern without a slash matches file names at any depth (`*.py`)."
)


def _path_filter(pattern: str | None) -> Callable[[str], bool]:
    """Return a predicate for paths relative to the start of a walk. Without a pattern, it accepts all paths.

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
"""Threads for work on many files. They are separate, so that calls for one file do not wait for them."""

_MAX_DEPTH = 100
_SYSTEM_FOLDERS = frozenset(map(Path, ("/proc", "/sys", "/dev")))
"""Folders whose content is not on a disk. A walk through them would be endless and useless."""
_GENERATED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})

OMISSIONS_TEXT = (
    "hidden files and folders, those that .gitignore names, node_modules, __pycache__, venv and symbolic links "
    "are left out"
)
INCLUDE_IGNORED_DESCRIPTION = "Include files that .gitignore names."


@dataclass(frozen=True, slots=True)
class WalkedFile:
    """A file that a walk has reached. It can be opened only until the walk yields the next file."""

    path: str
    """Relative to the root."""
    name: str
    folder: int
    """The descriptor of its folder. Opening each file from the root would take longer than the rest of a search."""

    def open(self) -> BinaryIO:
        return open_in_folder(self.path, self.name, self.folder)


class FileWalk:
    """One walk through the files below a path that match a pattern, bounded in time.

    It leaves out files and folders that a `.gitignore` in or below the root names. A walk can start in a folder that is
    ignored itself. Then the `.gitignore` files above that folder have no effect.
    """

    def __init__(self, root: FileRoot, path: str, pattern: str | None, *, includes_ignored: bool) -> None:
        """Prepare the walk. Raise ToolError (InvalidPattern) if matching could take too long."""
        self._root = root
        self._path = path
        self._accepts = _path_filter(pattern)
        self._includes_ignored = includes_ignored
        self._base = ""
        """The path of the folder in which the walk starts, with `/` at its end, or "" for the root."""
        self._ends = 0.0
        """The time of the monotonic clock at which the walk is cut."""
        self.cut = False
        """True if the time was not enough."""

    def files(self) -> Iterator[WalkedFile]:
        """Yield the files. Those of one folder are sorted by name."""
        target = self._root.locate(self._path)
        with path_errors(self._path), self._root.folder(target.parent) as parent:
            if stat.S_ISREG(os.stat(target.name or ".", dir_fd=parent, follow_symlinks=False).st_mode):
                if self._accepts(target.name):
                    yield WalkedFile(str(target), target.name, parent)
                return
        yield from self._files_below(target)

    def _files_below(self, target: PurePosixPath) -> Iterator[WalkedFile]:
        self._ends = time.monotonic() + TIME_LIMIT_S
        self._base = f"{target}/" if target.name else ""
        with path_errors(self._path), self._root.folder(target) as top:
            yield from self._files_in(top, self._base, self._outer_rules(target))

    def _outer_rules(self, target: PurePosixPath) -> IgnoreRules:
        """Return the ignore rules of the folders above the start of the walk."""
        rules = NO_IGNORE_RULES
        if self._includes_ignored:
            return rules
        above = PurePosixPath()
        for part in target.parts:
            with self._root.folder(above) as opened:
                rules = rules.in_folder(f"{above}/" if above.name else "", opened)
            above /= part
            if rules.ignores(str(above), is_folder=True):  # the walk starts in it, so only files from here on count
                rules = NO_IGNORE_RULES
        return rules

    def _files_in(self, folder: int, prefix: str, rules: IgnoreRules) -> Iterator[WalkedFile]:
        """Yield the files of an open folder, then those of its subfolders.

        Unreadable subfolders are skipped. `os.fwalk` would end at the first folder that can be opened but not listed,
        such as some in /proc. `prefix` is the path of the open folder, in the same form as `_base`.
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
            if self._must_stop():
                return
            path = prefix + name
            is_included = kind == "file" and not rules.ignores(path, is_folder=False)
            if is_included and self._accepts(path.removeprefix(self._base)):
                yield WalkedFile(path, name, folder)
        for name, kind in shown:
            if self._must_stop():  # checked for each folder, because the previous one may have taken long
                return
            path = prefix + name
            is_in_bounds = path.count("/") < _MAX_DEPTH and self._root.path / path not in _SYSTEM_FOLDERS
            if kind == "folder" and is_in_bounds and not rules.ignores(path, is_folder=True):
                with suppress(OSError), ExitStack() as opened:
                    below = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
                    opened.callback(os.close, below)
                    yield from self._files_in(below, f"{path}/", rules)

    def _must_stop(self) -> bool:
        """Return whether the time is over, and record it in `cut`."""
        self.cut = time.monotonic() > self._ends
        return self.cut


def _entry_kind(entry: os.DirEntry[str]) -> Literal["folder", "file", ""]:
    with suppress(OSError):  # the entry may be gone since it was listed
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        if entry.is_file(follow_symlinks=False):
            return "file"
    return ""
