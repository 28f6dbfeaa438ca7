"""The files that no agent may write: the rules that it is under, and everything that would run as a program."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path, PurePath
from unicodedata import normalize

from orga.activities.adapters.sandbox.removal import unlock_folder

_IGNORED_BY_HFS = dict.fromkeys(
    map(ord, "\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u206a\u206b\u206c\u206d\u206e\u206f\ufeff")
)
"""A table for `translate` that removes the characters that HFS, a file system of macOS, ignores in names."""

_RULE_NAMES = frozenset({".git", "git~1", "orga.toml", "orga~1.tom"})
"""Names that are rules in any folder, with their short names on DOS file systems. Git runs programs that `.git` names,
and `orga` reads `orga.toml` from the current folder upwards."""

MAX_FOLDERS = 50_000
"""Folders that are searched before each isolated command. Searching this many takes a second."""

_BYTECODE = "__pycache__"
_GENERATED_FOLDERS = frozenset({"node_modules", _BYTECODE, "venv", ".venv", "site-packages"})
_IMPORT_SUFFIXES = frozenset({".py", ".pyc", ".so", ".pyd"})
"""Endings of files that Python imports. It prefers packages to modules, and compiled modules to their source."""

REFUSAL_TEXT = (
    "it belongs to what decides over agents (policies, configuration, tools), or runs as a program; write elsewhere"
)

_Identity = tuple[int, int]
_Parts = tuple[str, ...]


class TooManyFolders(ValueError):
    """Not all folders were searched, so some rules may not have been found."""


@dataclass(frozen=True)
class Rules:
    """Absolute paths of files and folders, which need not exist. Links are resolved before paths are compared."""

    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    """Folders with everything that is in them, or will be."""
    globs: tuple[str, ...] = ()
    """Absolute patterns of files that would be read as rules if they existed."""
    modules: tuple[Path, ...] = ()
    """Paths of Python modules and packages without suffix: every file that Python would import under these names."""
    installed: tuple[Path, ...] = ()
    """Further folders, of programs and of our own state, which are too large to be searched."""
    stores: tuple[Path, ...] = ()
    """Files that the worker itself writes. If one appears while a command runs, the command may not have made it."""

    def is_forbidden(self, path: Path, below: Path) -> bool:
        """Return whether a path without links is a rule. Its parts below the folder `below` are also judged by name."""
        if any(map(_is_rule_name, path.relative_to(below).parts)):
            return True
        wanted = _folded_parts(path)
        return (
            any(wanted[: len(rule)] == rule for rule in map(_folded_parts, self._real_paths()))
            or any(_matches_glob(wanted, _folded_parts(PurePath(pattern))) for pattern in self.globs)
            or not self._real_modules().isdisjoint(_importable_modules(wanted))
        )

    def identities(self) -> frozenset[_Identity]:
        """Return the file system's identities of the existing rules, so that other names of them are found too."""
        rules = (*self._real_paths(), *module_files(self.modules))
        return frozenset(identity for rule in rules if (identity := file_identity(rule)))

    def paths_inside(self, folder: Path, present: Iterable[Path] | None = None) -> list[Path]:
        """Return the existing rules in a folder or above it, without links. A folder comes before its content.

        Args:
            folder: A folder whose path has no links.
            present: The result of `present_in` for the folder, if it is known.

        Raises:
            TooManyFolders: Not all folders can be searched.
        """
        present = self.present_in(folder) if present is None else present
        rules = (*self._real_paths(), *present, *self._hard_links(folder))
        existing = {path.resolve() for path in rules if path.exists()}
        return sorted(path for path in existing if path.is_relative_to(folder) or folder.is_relative_to(path))

    def present_in(self, folder: Path, deadline: float | None = None) -> dict[Path, Path | None]:
        """Return the rules in a real folder by their paths as spelled on disk, with the target of a link, or else None.

        Links on the way to a rule count too. With a `deadline` all folders are searched, however many. Without one,
        generated folders are skipped.

        Raises:
            TooManyFolders: Not all folders can be searched.
        """
        rules = (*self.files, *self.folders, *self.installed, *self._declared_paths(), *module_files(self.modules))
        configured = {path for rule in rules if (path := _path_within(folder, rule)) and os.path.lexists(path)}
        above = {parent for path in configured for parent in path.parents if folder in parent.parents}
        links = filter(Path.is_symlink, above)
        named = _named_rules(folder, deadline)
        return {path: path.readlink() if path.is_symlink() else None for path in (*configured, *links, *named)}

    def _real_paths(self) -> list[Path]:
        return [path.resolve() for path in (*self.files, *self.folders, *self.installed, *self.stores, *self._links())]

    def _real_modules(self) -> set[_Parts]:
        """Return the parts of the modules' paths. A module that is a link has two: its own path and its target."""
        real_parents = {parent: parent.resolve() for parent in {path.parent for path in self.modules}}
        modules = {_folded_parts(real_parents[path.parent] / path.name) for path in self.modules}
        return modules | {_folded_parts(path.resolve()) for path in self.modules if path.is_symlink()}

    def _declared_paths(self) -> Iterator[Path]:
        return (Path(name) for pattern in self.globs for name in glob(pattern, recursive=True))  # noqa: PTH207

    def _links(self) -> Iterator[Path]:
        """Yield the links in the folders or matched by a pattern, because rules are read from their targets."""
        for path in (*(path for folder in self.folders for path in folder.rglob("*")), *self._declared_paths()):
            if path.is_symlink() and not path.is_relative_to(path.resolve()):
                yield path

    def _hard_links(self, folder: Path) -> Iterator[Path]:
        """Yield other names of the same files, because writing to those changes the rule."""
        linked = {file_identity(file) for file in self._rule_files() if _has_other_names(file)}
        if linked:
            yield from (path for path in _files_below(folder) if file_identity(path) in linked)

    def _rule_files(self) -> Iterator[Path]:
        yield from self.files
        yield from module_files(self.modules)
        for folder in self.folders:
            yield from (path for path in folder.rglob("*") if path.is_file())


NO_RULES = Rules()


def file_identity(path: Path) -> _Identity | None:
    """Return the file system's identity of a path, or None if nothing is there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_generated(path: PurePath) -> bool:
    """Return whether a path is in a folder that is searched only after a command."""
    return not _GENERATED_FOLDERS.isdisjoint(path.parts)


def _is_rule_name(name: str) -> bool:
    """Return whether some file system takes the name for a rule's, by case, ignored characters, DOS name or stream."""
    plain = name if name.isascii() else normalize("NFKC", name).translate(_IGNORED_BY_HFS)
    return plain.casefold().partition(":")[0].rstrip(". ") in _RULE_NAMES


def _folded_parts(path: PurePath) -> _Parts:
    return tuple(map(_folded_name, path.parts))


def _folded_name(name: str) -> str:
    return normalize("NFKC", name).casefold()


def _matches_glob(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path, or a folder above it, matches a glob."""
    if not pattern or not parts:
        return not pattern
    if pattern[0] == "**":
        return _matches_glob(parts, pattern[1:]) or _matches_glob(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches_glob(parts[1:], pattern[1:])


def module_files(modules: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that Python would import under these names, compiled ones and dangling links included."""
    names: defaultdict[Path, set[str]] = defaultdict(set)
    for module in modules:
        names[module.parent].add(_folded_name(module.name))
        names[module].add("__init__")
    for parent, wanted in names.items():
        for folder in (parent, parent / _BYTECODE):
            yield from (file for file in _folder_entries(folder) if _module_name(file.name) in wanted)


def _importable_modules(path: _Parts) -> Iterator[_Parts]:
    """Yield the modules, without suffix, that Python may import from a file."""
    *above, file = path
    name = _module_name(file)
    if above[-1:] == [_BYTECODE]:
        above.pop()
    if name:
        yield (*above, name)
    if name == "__init__":
        yield tuple(above)


def _module_name(file: str) -> str | None:
    """Return the module name of a file: `till` for `till.cpython-311-x86_64-linux-gnu.so`."""
    return _folded_name(file.partition(".")[0]) if PurePath(file).suffix.lower() in _IMPORT_SUFFIXES else None


def _folder_entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _path_within(folder: Path, path: Path) -> Path | None:
    """Return the path with this real folder as its beginning, or None if it is outside of the folder."""
    ups = [index for index, part in enumerate(path.parts) if part == ".."]
    if ups:
        rest = ups[-1] + 1
        path = Path(*path.parts[:rest]).resolve().joinpath(*path.parts[rest:])
    for above in reversed(path.parents):
        if above.resolve() == folder:
            return folder / path.relative_to(above)
    real = path.parent.resolve() / path.name
    return real if folder in real.parents else None


def _has_other_names(file: Path) -> bool:
    try:
        return file.stat().st_nlink > 1
    except OSError:
        return False


def _named_rules(folder: Path, deadline: float | None) -> Iterator[Path]:
    for parent, folders, files in _walk_folders(folder, deadline):
        yield from (Path(parent, name) for name in (*folders, *files) if _is_rule_name(name))


def _files_below(folder: Path) -> Iterator[Path]:
    return (Path(parent, name) for parent, _, files in _walk_folders(folder) for name in files)


def _walk_folders(folder: Path, deadline: float | None = None) -> Iterator[tuple[str, list[str], Iterable[str]]]:
    """Walk through all folders, but not into `.git`. Without a `deadline`, generated folders are left out, too."""
    for count, (parent, folders, files) in enumerate(os.walk(folder)):
        if count == MAX_FOLDERS and deadline is None:
            raise TooManyFolders(f"{MAX_FOLDERS:,} folders and more are too many to look for rules in")
        if deadline is not None and time.monotonic() > deadline:
            raise TooManyFolders(f"{count:,} folders and more take too long to look for rules in")
        yield parent, folders, files
        left_out = _GENERATED_FOLDERS if deadline is None else ()
        folders[:] = [name for name in folders if name not in left_out and not _is_rule_name(name)]
        if deadline is not None:
            _make_listable(parent, folders)


def _make_listable(parent: str, folders: Iterable[str]) -> None:
    """Let their owner list these folders, because files in a folder that nobody can list can be read by name."""
    for path in (os.path.join(parent, name) for name in folders):  # noqa: PTH118
        if not os.access(path, os.R_OK | os.X_OK):
            with suppress(OSError):  # such as a link that leads nowhere
                os.close(unlock_folder(path, None))
