"""The files of a project: those that git knows or would add, else all but generated ones."""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from orga.activities.knowledge.conventions import MAX_DEPTH

_GENERATED = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "vendor", "__pycache__", "site-packages", "target", "dist"}
)
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", "ls-files", "-z")
"""A repository's own configuration could name a program here that git would start."""
_GIT_TIMEOUT_S = 60.0


def project_files(root: Path, is_wanted: Callable[[str], bool]) -> Iterator[str]:
    """Yield those that are wanted, by their paths from the root, `/` between parts; none deeper than `MAX_DEPTH`."""
    for path in _tracked(root) or _walked(root):
        if is_wanted(path) and path.count("/") <= MAX_DEPTH and os.path.lexists(root / path):
            yield path


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
