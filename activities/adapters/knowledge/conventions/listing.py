"""The files of a project that hold conventions: those that git knows or would add, else all but generated ones."""

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from orga.activities.adapters.knowledge.conventions.kinds import kind_of
from orga.activities.knowledge.conventions import MAX_DEPTH

MAX_FILES = 2_000

_GENERATED = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "vendor", "__pycache__", "site-packages", "target", "dist"}
)
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", "ls-files", "-z")
"""A repository's own configuration could name a program here that git would start."""
_GIT_TIMEOUT_S = 60.0


class TooMany(ValueError):
    """More files than a project has conventions."""


def convention_files(root: Path) -> list[str]:
    """Return their paths from the root, in order, `/` between parts.

    Raises:
        TooMany: The root is no project.
    """
    found: list[str] = []
    for path in _tracked(root) or _walked(root):
        if kind_of(path) is not None and path.count("/") <= MAX_DEPTH and os.path.lexists(root / path):
            found.append(path)
        if len(found) > MAX_FILES:
            raise TooMany(f"more than {MAX_FILES:,} files with conventions lie in {root}; name the folder of a project")
    return sorted(found)


def _tracked(root: Path) -> Iterable[str]:
    """Return what git lists, itself leaving out what is ignored; nothing where there is no git or no repository."""
    git = [*_GIT, "--cached", "--others", "--exclude-standard"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            git, cwd=root, env=env, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    listed = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    return sorted(listed) if done.returncode == 0 else ()


def _walked(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _GENERATED)
        inside = Path(folder).relative_to(root)
        if len(inside.parts) >= MAX_DEPTH:
            folders.clear()
        yield from ((inside / name).as_posix() for name in sorted(names))
