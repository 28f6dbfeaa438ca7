"""What no agent writes, wherever its tools may write: the rules that it is under, and what would run as a program."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path, PurePath
from unicodedata import normalize

_IGNORED_BY_HFS = frozenset(
    "\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u206a\u206b\u206c\u206d\u206e\u206f\ufeff"
)
_NAMES = frozenset({".git", "git~1", "orga.toml", "orga~1.tom"})
"""Wherever they lie, with their short names on DOS file systems: git runs what stands in the one, `orga` reads the
other upwards from where somebody works."""
MAX_FOLDERS = 50_000
"""That are looked through before each isolated command: a second."""
_GENERATED = frozenset({"node_modules", "__pycache__", "venv", ".venv", "site-packages"})

REFUSAL = (
    "it belongs to what decides over agents (policies, configuration, tools), or runs as a program; write elsewhere"
)

_Identity = tuple[int, int]


class TooManyFolders(ValueError):
    """Rules may lie where nobody looked."""


@dataclass(frozen=True)
class Rules:
    """Files and folders, absolute; they need not exist. What counts is where they really lie."""

    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    """With all that is in them, or will be."""
    globs: tuple[str, ...] = ()
    """Absolute patterns of files that would be read as rules, if they were there."""
    installed: tuple[Path, ...] = ()
    """Folders as well, of programs and of our own state: too large to be looked into."""

    def forbid(self, path: Path, below: Path) -> bool:
        """Say whether a path without links is one of them; as much of it as is `below` a folder counts by name, too."""
        if any(map(_is_name_of_rules, path.relative_to(below).parts)):
            return True
        wanted = _folded(path)
        return any(wanted[: len(rule)] == rule for rule in map(_folded, self._real())) or any(
            _matches(wanted, _folded(PurePath(pattern))) for pattern in self.globs
        )

    def identities(self) -> frozenset[_Identity]:
        """Return by what the file system knows those that exist, whatever they are called elsewhere."""
        return frozenset(found for rule in self._real() if (found := identity(rule)))

    def inside(self, folder: Path) -> list[Path]:
        """Return what of them exists in a folder, or is above it, without links, each before what is in it.

        Raises:
            TooManyFolders: It cannot be told.
        """
        matching = (Path(name) for pattern in self.globs for name in glob(pattern, recursive=True))  # noqa: PTH207
        every = (*self._real(), *matching, *_named(folder), *self._linked(folder))
        found = {path.resolve() for path in every if path.exists()}
        return sorted(path for path in found if path.is_relative_to(folder) or folder.is_relative_to(path))

    def _real(self) -> list[Path]:
        return [path.resolve() for path in (*self.files, *self.folders, *self.installed, *self._links())]

    def _links(self) -> Iterator[Path]:
        """Yield the links among what is in the folders, or is meant by a pattern: rules are read where they lead."""
        meant = (Path(name) for pattern in self.globs for name in glob(pattern, recursive=True))  # noqa: PTH207
        for path in (*(path for folder in self.folders for path in folder.rglob("*")), *meant):
            if path.is_symlink() and not path.is_relative_to(path.resolve()):
                yield path

    def _linked(self, folder: Path) -> Iterator[Path]:
        """Yield other names of the same files: what is written through those changes the rule."""
        linked = {identity(file) for file in self._each_file() if _has_other_names(file)}
        if linked:
            yield from (path for path in _files_below(folder) if identity(path) in linked)

    def _each_file(self) -> Iterator[Path]:
        yield from self.files
        for folder in self.folders:
            yield from (path for path in folder.rglob("*") if path.is_file())


NO_RULES = Rules()


def identity(path: Path) -> _Identity | None:
    """Return by what the file system knows it, or None where nothing is."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_name_of_rules(name: str) -> bool:
    """Whether some file system takes the name for one of them: other case, ignored characters, DOS names, streams."""
    folded = "".join(c for c in normalize("NFKC", name) if c not in _IGNORED_BY_HFS).casefold()
    return folded.partition(":")[0].rstrip(". ") in _NAMES


def _folded(path: PurePath) -> tuple[str, ...]:
    return tuple(normalize("NFKC", part).casefold() for part in path.parts)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Say whether a path, or a folder above it, is what a glob means."""
    if not pattern or not parts:
        return not pattern
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _has_other_names(file: Path) -> bool:
    try:
        return file.stat().st_nlink > 1
    except OSError:
        return False


def _named(folder: Path) -> Iterator[Path]:
    for here, folders, files in _walk(folder):
        yield from (Path(here, name) for name in (*folders, *files) if _is_name_of_rules(name))


def _files_below(folder: Path) -> Iterator[Path]:
    return (Path(here, name) for here, _, files in _walk(folder) for name in files)


def _walk(folder: Path) -> Iterator[tuple[str, list[str], Iterable[str]]]:
    """Walk through all but what is inside a `.git` or generated. Whoever makes folders must not make us stop early."""
    for count, (here, folders, files) in enumerate(os.walk(folder)):
        if count == MAX_FOLDERS:
            raise TooManyFolders(f"{MAX_FOLDERS:,} folders and more are too many to look for rules in")
        yield here, folders, files
        folders[:] = [name for name in folders if name not in _GENERATED and not _is_name_of_rules(name)]
