"""The files of a policy folder: those that all share, then those of one surface."""

import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from orga.activities.adapters.policy.problems import BrokenPolicies
from orga.activities.adapters.problem import Problem

SUFFIX = ".cedar"
VERSION_CHARS = 12


@dataclass(frozen=True)
class PolicyFile:
    """One file."""

    name: str
    """Its path in the folder."""
    shown: str
    """Its path as people are told it."""
    content: bytes


def policy_files(folder: Path, surface: str | None = None) -> tuple[PolicyFile, ...]:
    """Return the files in the order of their names, the shared ones first; hidden ones are those of editors.

    Raises:
        BrokenPolicies: The folder, that of the surface or a file cannot be read: what it forbids would be lost.
    """
    folders = [folder, *([folder / surface] if surface else [])]
    return tuple(file for there in folders for file in _files(there, folder))


def version_of(files: tuple[PolicyFile, ...]) -> str:
    """Return a short digest of all names and contents."""
    digest = sha256()
    for file in files:
        digest.update(f"{file.name}\0{len(file.content)}\0".encode(errors="surrogateescape"))
        digest.update(file.content)
    return digest.hexdigest()[:VERSION_CHARS]


def _files(there: Path, root: Path) -> list[PolicyFile]:
    if not there.is_dir():
        raise BrokenPolicies([Problem(str(there), "there is no such folder", "create it, or correct [policy]")])
    return [_file(path, root) for path in _named(there)]


def _named(there: Path) -> list[Path]:
    try:
        found = sorted(there.iterdir())
    except OSError as error:
        raise _unreadable(there, error.strerror) from error
    return [path for path in found if path.suffix.lower() == SUFFIX and not path.name.startswith(".")]


def _file(path: Path, root: Path) -> PolicyFile:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would wait for ever
            raise _unreadable(path, "it is no file")
        name = path.relative_to(root)
        return PolicyFile(str(name), str(root.name / name), path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error.strerror) from error


def _unreadable(path: Path, why: str | None) -> BrokenPolicies:
    remedy = "make it a readable file, or remove it"
    return BrokenPolicies([Problem(str(path), f"cannot be read ({why})", remedy)])
