"""Isolates a command with bubblewrap in namespaces of its own, and checks whether this machine can do that.

The command sees no process, socket or network of the host. It cannot write files, and folders that usually hold private
files are empty. Only `bubblewrap_argv` can make one folder writable.
"""

import logging
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from orga.workflows.types.tool_calls.sandbox import Isolation

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
_HIDDEN_FOLDERS = ("/tmp", "/var/tmp", "/run", "/home", "/root")
"""Folders with private files, or with sockets of services. Such a socket would give access to the network."""
_ISOLATION_FLAGS = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
_PROC_MOUNT = ("--proc", "/proc", "--remount-ro", "/proc")
"""Makes /proc read-only. Otherwise root, even without capabilities, could set the program that runs after a crash."""
_READ_ONLY_MOUNTS = ("--ro-bind", "/", "/", "--dev", "/dev", *_PROC_MOUNT)
_RESOLVER_FILE = Path("/etc/resolv.conf")
_CHECK_TIMEOUT_S = 20
_NO_ISOLATION_HINT = 'or set isolation = "none", which limits commands but hides nothing from them'


def bubblewrap_argv(
    argv: Sequence[str], *, writable: Path, folder: Path, network: bool, kept: Sequence[Path] = ()
) -> list[str]:
    """Return the command line that runs `argv` in `folder`. It can only write to `writable`, except to `kept` in it.

    Raise ValueError if bubblewrap is not installed.
    """
    private = [part for path in _HIDDEN_FOLDERS if Path(path).is_dir() for part in ("--tmpfs", path)]
    files = [*_READ_ONLY_MOUNTS, *private, *_visible_file_mounts(argv[0])]
    online = ["--share-net", *_visible_file_mounts(str(_RESOLVER_FILE.resolve()))] if network else []
    workspace = [*_writable_mounts(writable, kept), "--chdir", str(folder)]
    return [_bubblewrap_path(), *_ISOLATION_FLAGS, *files, *online, *workspace, "--", *argv]


def _writable_mounts(folder: Path, kept: Sequence[Path]) -> list[str]:
    """Return mounts of the writable folder, its read-only parts, and the folders between. A mount cannot be moved."""
    if any(folder.is_relative_to(path) for path in kept):
        return ["--ro-bind", str(folder), str(folder)]
    between = {above for path in kept for above in path.parents if above.is_relative_to(folder)}
    mounts = dict.fromkeys(between | {folder}, "--bind") | dict.fromkeys(kept, "--ro-bind")
    return [part for path in sorted(mounts) for part in (mounts[path], str(path), str(path))]


def check_bubblewrap() -> None:
    """Try bubblewrap. Raise ValueError with the remedy if it cannot be used here."""
    if sys.platform != "linux":
        raise ValueError(f"bubblewrap needs Linux; run the worker there, {_NO_ISOLATION_HINT}")
    tried = [_bubblewrap_path(), *_ISOLATION_FLAGS, *_READ_ONLY_MOUNTS, "--", "/bin/true"]
    done = subprocess.run(
        tried, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise ValueError(
            f"bubblewrap cannot isolate here: {done.stderr.strip()[-300:] or 'it gives no reason'}; allow user "
            "namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone; in a container a seccomp "
            f"profile that permits them and an unmasked /proc), {_NO_ISOLATION_HINT}"
        )


def _bubblewrap_path() -> str:
    found = shutil.which("bwrap", path=SEARCH_PATH)
    if found is None:
        raise ValueError(
            f"bubblewrap is not installed; install it (Debian: apt-get install bubblewrap), {_NO_ISOLATION_HINT}"
        )
    return found


def _visible_file_mounts(path: str) -> list[str]:
    """Return the mounts that show a file even if its folder is hidden."""
    is_hidden = any(Path(path).is_relative_to(folder) for folder in _HIDDEN_FOLDERS)
    return ["--ro-bind-try", path, path] if is_hidden else []


_log = logging.getLogger(__name__)

_NOT_LINUX_WARNING = (
    "commands: on this system memory and the number of processes are not limited, and a process that moves to a "
    "session of its own outlives its call; on Linux all that holds"
)


def check_isolation(isolation: Isolation) -> None:
    """Raise ValueError if the isolation is impossible here. Log a warning if this system limits less than Linux."""
    if isolation == "bubblewrap":
        check_bubblewrap()
    elif sys.platform != "linux":
        _log.warning(_NOT_LINUX_WARNING)
