"""Lists the files of a project (those that git tracks or would add), and reads them as bounded text."""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from orga.activities.adapters.tools.gitignore import NO_IGNORE_RULES
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.knowledge.conventions import MAX_DEPTH
from orga.activities.ports import ToolError
from orga.own_code import installed_program
from orga.workflows.types.text import clean_text

_GENERATED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "vendor", "__pycache__", "site-packages", "target", "dist"}
)
_LIST_COMMAND = ("-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
_GIT_VARIABLES = ("HOME", "LANG", "PATH", "TMPDIR", "XDG_CONFIG_HOME")
"""The only variables that git gets, because our environment contains keys."""
_GIT_TIMEOUT_S = 60.0
_MAX_LINK_BYTES = 4_096


def project_files(root: Path, is_wanted: Callable[[str], bool]) -> Iterator[str]:
    """Yield the wanted files as paths from the root, with `/` between parts and not deeper than `MAX_DEPTH`."""
    for path in _git_files(root) or _walk_files(root):
        if is_wanted(path) and path.count("/") <= MAX_DEPTH and os.path.lexists(root / path):
            yield path


def _git_files(root: Path) -> Iterable[str]:
    """Return the files that git lists, without ignored ones, or nothing if there is no git or no repository.

    A repository's configuration can name programs, and git runs them even to list files, for example to complete
    a sparse index. So git runs in an empty repository of ours, and uses only the project's index and ignore patterns.
    """
    git = installed_program("git")
    top = next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), None)
    if git is None or top is None:
        return ()
    try:
        with TemporaryDirectory(prefix="orga-") as ours:
            return _run_git_list(git, root, top, Path(ours))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()


def _run_git_list(git: str, root: Path, top: Path, ours: Path) -> Iterable[str]:
    theirs = top / ".git"
    if theirs.is_file():  # in a worktree and in a submodule
        theirs = top / _read_text_line(theirs).removeprefix("gitdir:").strip()
    common = theirs / _read_text_line(theirs / "commondir").strip()  # all worktrees share it
    _make_repository(ours, common / "info" / "exclude")
    env = {name: os.environ[name] for name in _GIT_VARIABLES if name in os.environ}
    env |= {"GIT_DIR": str(ours), "GIT_WORK_TREE": str(top)}
    indexes = [theirs / "index"] if (theirs / "index").is_file() else []
    # If an index needs more of its repository, git fails. Without it, files that are tracked and ignored are missing.
    for index in (*indexes, ours / "index"):
        done = subprocess.run(
            [git, *_LIST_COMMAND],
            cwd=root,
            env=env | {"GIT_INDEX_FILE": str(index)},
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode == 0:
            return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})
    return ()


def _read_text_line(file: Path) -> str:
    if not file.is_file():
        return ""
    with file.open("rb") as opened:
        return os.fsdecode(opened.read(_MAX_LINK_BYTES))


def _make_repository(folder: Path, exclude: Path) -> None:
    for name in ("objects", "refs", "info"):
        (folder / name).mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    if exclude.is_file():
        (folder / "info" / "exclude").symlink_to(exclude)


def _walk_files(root: Path) -> Iterator[str]:
    """Yield the files below a folder without those that a `.gitignore` file names. This works without git."""
    rules = {"": NO_IGNORE_RULES}
    for folder, folders, names in os.walk(root):
        inside = "" if folder == str(root) else f"{Path(folder).relative_to(root).as_posix()}/"
        own = rules.pop(inside).in_folder(inside, Path(folder))
        wanted = (name for name in folders if name not in _GENERATED_FOLDERS)
        folders[:] = sorted(name for name in wanted if not own.ignores(inside + name, is_folder=True))
        if inside.count("/") >= MAX_DEPTH:
            folders.clear()
        rules |= {f"{inside}{name}/": own for name in folders}
        yield from (inside + name for name in sorted(names) if not own.ignores(inside + name, is_folder=False))


@dataclass(frozen=True)
class FileChange:
    """The result of an import for one file."""

    path: str
    """The file's name in the store."""
    change: Literal["added", "changed", "unchanged", "removed", "unreadable"]
    items: int
    """Number of stored items of the file. For a removed file, the number of removed items."""
    detail: str = ""
    """The reason why it cannot be read. Its stored items stay."""


class UnreadableFile(ValueError):
    """A file cannot be read, or is not what its name promises. The text gives the reason."""


def read_project_file(root: Path, path: str, max_bytes: int) -> str:
    """Return a file's text. Raise UnreadableFile if it is no text, too large, or not a regular file in the root."""
    return project_text(read_project_bytes(root, path, max_bytes))


def project_text(data: bytes) -> str:
    """Return a file's content as text. Raise UnreadableFile if it is no text."""
    if b"\0" in data:
        raise UnreadableFile("it is no text")
    return clean_text(data.decode("utf-8-sig", "replace"))


def read_project_bytes(root: Path, path: str, max_bytes: int) -> bytes:
    """Raise UnreadableFile if the file is too large, or not a regular file in the root."""
    try:
        with FileRoot(root).open_file(path) as file:
            data = file.read(max_bytes + 1)
    except ToolError as error:
        raise UnreadableFile(str(error)) from None
    except OSError as error:
        raise UnreadableFile(error.strerror or "it cannot be read") from None
    if len(data) > max_bytes:
        raise UnreadableFile(f"it is larger than {max_bytes // 1024:,} KiB")
    return data
