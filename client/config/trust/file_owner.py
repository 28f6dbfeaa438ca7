"""Whose a file is: what others can put into one's way is no configuration."""

import stat
from pathlib import Path


def foreign(path: Path, user: int) -> str | None:
    """Return why a file, or the folder that it lies in, may come from somebody else than `user` and root; else None."""
    real = path.resolve()
    for place in dict.fromkeys((path, real, path.parent.resolve(), real.parent)):
        status = place.lstat()
        if status.st_uid not in (user, 0):
            return f"{place} belongs to another user ({status.st_uid})"
        if status.st_mode & stat.S_IWOTH and not stat.S_ISLNK(status.st_mode):
            return f"{place} can be written by every user"
    return None
