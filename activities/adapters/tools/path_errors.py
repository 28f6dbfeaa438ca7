"""Failures of a path, told so that the model knows what to do instead."""

import errno
from collections.abc import Generator
from contextlib import contextmanager

from orga.activities.ports import ToolError

_REMEDIES = {
    errno.ENOENT: ("NotFound", "there is no such file or folder; list_files shows what there is"),
    errno.ENOTDIR: ("NotAFolder", "a part of it is a file, not a folder; list_files shows what there is"),
    errno.EISDIR: ("IsAFolder", "it is a folder; name a file in it, list_files shows them"),
    errno.ELOOP: ("PathRefused", "its symbolic links form a loop or changed while it was opened; name the target"),
    errno.ENAMETOOLONG: ("PathRefused", "the name is too long; use a shorter one"),
    errno.EACCES: ("PermissionDenied", "the worker may not open it; use another file"),
    errno.EPERM: ("PermissionDenied", "the worker may not open it; use another file"),
    errno.EROFS: ("PermissionDenied", "the file system is read-only; write elsewhere"),
}


def refused(path: str, why: str, kind: str = "PathRefused") -> ToolError:
    """Return the error that names the path and the remedy."""
    return ToolError(f"{shown(path)}: {why}", kind=kind)


@contextmanager
def path_errors(path: str) -> Generator[None]:
    """Turn an `OSError` into a `ToolError` about `path`; one with no known remedy may pass, so it is retryable."""
    try:
        yield
    except OSError as error:
        known = _REMEDIES.get(error.errno or 0)
        if known is None:
            raise ToolError(f"{shown(path)}: {error.strerror}", kind="FileError", retryable=True) from error
        raise refused(path, known[1], known[0]) from error


def shown(name: str) -> str:
    r"""Return a name that stays on its line: control and undecodable characters become escapes such as `\x0a`."""
    cut = name if len(name) <= 500 else name[:500] + "…"
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in cut)
