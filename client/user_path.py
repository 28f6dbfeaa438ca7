"""Paths as people write them."""

from pathlib import Path


def user_path(written: str | Path) -> Path:
    """Return the path with `~` replaced; where no such user has a home it stays as it is, and nothing is there."""
    try:
        return Path(written).expanduser()
    except RuntimeError:
        return Path(written)
