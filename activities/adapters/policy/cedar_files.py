"""Reads the Cedar files of a policy folder: first the shared ones, then those of one surface.

Every start of a run imports this module, so it does not import the Cedar library.
"""

import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from orga.activities.adapters.problem import BrokenPolicies, FileProblem

SUFFIX = ".cedar"
VERSION_CHARS = 12

MAX_FILES = 1_000
"""Files of all folders together. The engine reads all of them once a second."""

MAX_BYTES = 1_000_000
"""Bytes of all files together."""


@dataclass(frozen=True)
class PolicyFile:
    name: str
    """The file's path relative to the policy folder."""
    shown: str
    """The same path with the folder's name before it, for messages."""
    content: bytes


def policy_files(folder: Path, surface: str | None = None) -> tuple[PolicyFile, ...]:
    """Return the shared files by name, then those of the surface. Skip hidden files, which editors create.

    Raise BrokenPolicies if a file cannot be read, because its `forbid` rules would be lost.
    """
    folders = [folder, folder / surface] if surface else [folder]
    found = [path for each in folders for path in _policy_paths(each)]
    if len(found) > MAX_FILES:
        problem = f"there are {len(found):,} policy files; at most {MAX_FILES:,} are allowed"
        raise BrokenPolicies([FileProblem(str(folder), problem, "put several policies into one file")])
    files: list[PolicyFile] = []
    left = MAX_BYTES
    for path in found:
        files.append(_read_file(path, folder, left))
        left -= len(files[-1].content)
    return tuple(files)


def files_version(files: tuple[PolicyFile, ...]) -> str:
    digest = sha256()
    for file in files:
        digest.update(f"{file.name}\0{len(file.content)}\0".encode(errors="surrogateescape"))
        digest.update(file.content)
    return digest.hexdigest()[:VERSION_CHARS]


def _policy_paths(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BrokenPolicies([FileProblem(str(folder), "there is no such folder", "create it, or correct [policy]")])
    try:
        return sorted(
            path for path in folder.iterdir() if path.name.lower().endswith(SUFFIX) and not path.name.startswith(".")
        )
    except OSError as error:
        raise _unreadable_error(folder, error.strerror) from error


def _read_file(path: Path, root: Path, most: int) -> PolicyFile:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would block for ever
            raise _unreadable_error(path, "it is no file")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise _unreadable_error(path, error.strerror) from error
    if len(content) > most:
        problem = f"the policy files have more than {MAX_BYTES:,} bytes together"
        raise BrokenPolicies([FileProblem(str(path), problem, "remove policies, or write them shorter")])
    name = path.relative_to(root)
    return PolicyFile(str(name), str(root.name / name), content)


def _unreadable_error(path: Path, why: str | None) -> BrokenPolicies:
    remedy = "make it a readable file, or remove it"
    return BrokenPolicies([FileProblem(str(path), f"cannot be read ({why})", remedy)])
